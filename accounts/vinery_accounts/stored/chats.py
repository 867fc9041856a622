"""Stored chat completions, by their metadata too."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import msgspec
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from vinery_accounts.base.encryption import keys_of
from vinery_accounts.models import ChatMetadata, StoredChat
from vinery_accounts.stored import rows
from vinery_accounts.stored.rows import PURPOSE, New, row_of, text_of

_FEW: Final = 500


class ChatTexts(msgspec.Struct, frozen=True):
    """`completion` without `metadata`, and `messages`, are JSON."""

    completion: bytes
    messages: bytes
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class NewChat(New):
    texts: ChatTexts


def keep(new: NewChat) -> StoredChat:
    """Store a chat. Raises `django.db.Error`. Within a transaction."""
    row: StoredChat = new.insert(StoredChat, msgspec.msgpack.encode(new.texts))
    _store_pairs(row, new.texts.metadata)
    return row


def _store_pairs(row: StoredChat, metadata: Mapping[str, str]) -> None:
    digests = (_digests(row.project_id, *pair)[0] for pair in metadata.items())
    ChatMetadata.objects.bulk_create(ChatMetadata(chat=row, digest=each) for each in digests)


def renew_pairs(row: StoredChat) -> None:
    """Hash the metadata again, with the newest key. Within a transaction."""
    ChatMetadata.objects.filter(chat=row).delete()
    _store_pairs(row, _texts(row).metadata)


def _digests(project_id: int | None, key: str, value: str) -> list[str]:
    """A pair's hashes with all keys, the newest first."""
    named = "\0".join((str(project_id), key, value)).encode()
    keys = keys_of(PURPOSE + b" metadata")
    return [hmac.digest(each, named, hashlib.sha256).hex()[:32] for each in keys]


def _texts(row: StoredChat) -> ChatTexts:
    return msgspec.msgpack.decode(text_of(row), type=ChatTexts)


def find(project_id: int | None, public_id: str) -> ChatTexts:
    """Raises `NotStored`."""
    return _texts(row_of(StoredChat, project_id, public_id))


def page(
    project_id: int | None, *, model: str | None, metadata: Mapping[str, str], **place: Any
) -> tuple[list[tuple[str, ChatTexts]], bool]:
    """A page of chats with their ids, in the order of their creation, as `rows.stored_page`."""
    every, wanted, has_few = StoredChat.objects.of(project_id), StoredChat.objects.kept(), False
    for pair in metadata.items():
        pairs = ChatMetadata.objects.filter(digest__in=_digests(project_id, *pair))
        # In the order of the index, without which PostgreSQL may read the whole table.
        few = list(pairs.order_by("chat_id").values_list("chat_id", flat=True)[: _FEW + 1])
        # Chats of a usual pair are found on the way, because sorting all of them takes long.
        is_there = Exists(pairs.filter(chat=OuterRef("pk")))
        has_few |= len(few) <= _FEW
        wanted = wanted.filter(is_there if len(few) > _FEW else Q(pk__in=few))
    # Hashes differ between projects. For a project, SQLite would read all its chats, not the few.
    wanted = wanted if has_few else wanted.of(project_id)
    wanted = wanted if model is None else wanted.filter(model=model)
    pks, has_more = rows.stored_page(wanted, every, ("created_at", "pk"), **place)
    by_pk = StoredChat.objects.in_bulk(pks)
    found = (by_pk[pk] for pk in pks if pk in by_pk)
    return [(row.public_id, _texts(row)) for row in found], has_more


def update(project_id: int | None, public_id: str, metadata: dict[str, str]) -> ChatTexts:
    with transaction.atomic():
        row = row_of(StoredChat, project_id, public_id, is_locked=True)
        texts = msgspec.structs.replace(_texts(row), metadata=metadata)
        rows.rewrite(row, msgspec.msgpack.encode(texts))
        renew_pairs(row)
    return texts


def delete(project_id: int | None, public_id: str) -> None:
    """Raises `NotStored`."""
    remove_all(Q(pk=row_of(StoredChat, project_id, public_id).pk))


def remove_all(condition: Q, until_s: float = inf) -> int:
    found = StoredChat.objects.filter(condition).order_by("expires_at").select_for_update()
    return rows.in_groups(lambda: rows.remove(found[:500]), until_s)
