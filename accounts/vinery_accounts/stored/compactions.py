"""Compactions: what replaces the start of a conversation, as a text that the client keeps and only
this server reads. The text is bound to a project, and nothing of it has to be stored."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from vinery_accounts.stored.rows import opened, resealed, sealed

KIND: Final = "compaction"


def _name(project_id: int | None) -> str:
    """To what a text is bound; no row has such an id."""
    return f"{KIND} {project_id or 0}"


def seal(project_id: int | None, content: bytes) -> str:
    return urlsafe_b64encode(sealed(_name(project_id), content)).decode()


def unseal(project_id: int | None, text: str) -> bytes:
    """Raises ValueError for what this server has not sealed, and for that of another project."""
    return opened(_name(project_id), urlsafe_b64decode(text))


def read_summary(project_id: int | None, text: str) -> str:
    """Raises ValueError as `unseal` does."""
    summary: str = json.loads(unseal(project_id, text))["summary"]
    return summary


def resealed_item(project_id: int | None, public_id: str, content: bytes) -> bytes:
    """A stored compaction with both its seals of the newest key. Raises ValueError."""
    item = json.loads(opened(public_id, content))
    text = urlsafe_b64decode(item["encrypted_content"])
    new = resealed(_name(project_id), text)
    if new == text:
        return resealed(public_id, content)
    item["encrypted_content"] = urlsafe_b64encode(new).decode()
    return sealed(public_id, json.dumps(item, separators=(",", ":")).encode())
