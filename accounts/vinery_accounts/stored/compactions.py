"""Compactions: what replaces the start of a conversation, as a text that the client keeps and only
this server reads. The text is bound to a project, and nothing of it has to be stored."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from vinery_accounts.base import encryption
from vinery_accounts.stored.rows import opened, resealed, sealed

KIND: Final = "compaction"
_PURPOSE: Final = b"vinery compaction"


def seal(project_id: int | None, content: bytes) -> str:
    bound_to = b"%d" % (project_id or 0)
    return urlsafe_b64encode(encryption.seal(_PURPOSE, content, bound_to=bound_to)).decode()


def unseal(project_id: int | None, text: str) -> bytes:
    """Raises ValueError for what this server has not sealed, and for that of another project."""
    bound_to = b"%d" % (project_id or 0)
    return encryption.unseal(_PURPOSE, urlsafe_b64decode(text), bound_to=bound_to)


def resealed_item(project_id: int | None, public_id: str, content: bytes) -> bytes:
    """A stored compaction with both its seals of the newest key. Raises ValueError."""
    item = json.loads(opened(public_id, content))
    text, bound_to = urlsafe_b64decode(item["encrypted_content"]), b"%d" % (project_id or 0)
    new = encryption.resealed(_PURPOSE, text, bound_to=bound_to)
    if new == text:
        return resealed(public_id, content)
    item["encrypted_content"] = urlsafe_b64encode(new).decode()
    return sealed(public_id, json.dumps(item, separators=(",", ":")).encode())
