"""Stored chat completions, by their metadata too."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Final

import msgspec
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from vinery_accounts.base.encryption import keys_of
from vinery_accounts.models import ChatMetadata, StoredChat
from vinery_accounts.stored.rows import (
    PURPOSE,
    NotStored,
    Owner,
    count_bytes,
    num_of_page,
    opened,
    repeat,
    sealed,
    uncount_bytes,
)

_FEW: Final = 500
_REMOVED_AT_ONCE: Final = 500


class ChatTexts(msgspec.Struct, frozen=True):
    """`completion` without `metadata`, and `messages`, are JSON."""

    completion: bytes
    messages: bytes
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class NewChat:
    owner: Owner
    public_id: str
    model: str
    request_id: str
    created_at: datetime
    days: int
    texts: ChatTexts


def keep(new: NewChat) -> None:
    """Store a chat. Raises `django.db.Error`. Within a transaction."""
    content = sealed(new.public_id, msgspec.msgpack.encode(new.texts))
    row = StoredChat.objects.create(
        public_id=new.public_id,
        model=new.model,
        request_id=new.request_id,
        created_at=new.created_at,
        expires_at=new.created_at + timedelta(days=new.days),
        num_bytes=len(content),
        sealed=content,
        **new.owner.columns(),
    )
    _store_pairs(row, new.texts.metadata)
    count_bytes(new.owner.project_id, row.num_bytes)


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


def _row(project_id: int | None, public_id: str) -> StoredChat:
    rows = StoredChat.objects.of(project_id).kept().filter(public_id=public_id)
    found: StoredChat | None = rows.first()
    if found is None:
        raise NotStored("Chat completion", public_id)
    return found


def _texts(row: StoredChat) -> ChatTexts:
    return msgspec.msgpack.decode(opened(row.public_id, row.sealed), type=ChatTexts)


def find(project_id: int | None, public_id: str) -> ChatTexts:
    """Raises `NotStored`."""
    return _texts(_row(project_id, public_id))


def page(
    project_id: int | None,
    *,
    model: str | None,
    metadata: Mapping[str, str],
    after: str | None,
    limit: int,
    is_descending: bool,
) -> tuple[list[ChatTexts], bool] | None:
    """A page of chats in the order of their creation, and whether more follow; None if there is no
    chat `after`."""
    rows = StoredChat.objects.of(project_id).kept()
    if model is not None:
        rows = rows.filter(model=model)
    for pair in metadata.items():
        pairs = ChatMetadata.objects.filter(digest__in=_digests(project_id, *pair))
        # In the order of the index, without which PostgreSQL may read the whole table.
        few = list(pairs.order_by("chat_id").values_list("chat_id", flat=True)[: _FEW + 1])
        # Chats of a usual pair are found on the way, because sorting all of them takes long.
        is_there = Exists(pairs.filter(chat=OuterRef("pk")))
        rows = rows.filter(is_there if len(few) > _FEW else Q(pk__in=few))
    if after is not None:
        last = StoredChat.objects.of(project_id).filter(public_id=after).first()
        if last is None:
            return None
        way = "lt" if is_descending else "gt"
        later = Q(created_at=last.created_at, **{f"pk__{way}": last.pk})
        rows = rows.filter(Q(**{f"created_at__{way}": last.created_at}) | later)
        # A bound of an index, which no alternatives are.
        rows = rows.filter(**{f"created_at__{way}e": last.created_at})
    order = ("-created_at", "-pk") if is_descending else ("created_at", "pk")
    found = list(rows.order_by(*order).values_list("pk", "num_bytes")[: limit + 1])
    num = num_of_page([num_bytes for _, num_bytes in found], limit)
    pks = [pk for pk, _ in found[:num]]
    by_pk = StoredChat.objects.in_bulk(pks)
    return [_texts(by_pk[pk]) for pk in pks if pk in by_pk], num < len(found)


def update(project_id: int | None, public_id: str, metadata: dict[str, str]) -> ChatTexts:
    """Replace the metadata. Raises `NotStored`."""
    with transaction.atomic():
        StoredChat.objects.select_for_update().filter(public_id=public_id).first()
        row = _row(project_id, public_id)
        texts = msgspec.structs.replace(_texts(row), metadata=metadata)
        content = sealed(public_id, msgspec.msgpack.encode(texts))
        count_bytes(project_id, len(content) - row.num_bytes)
        row.num_bytes, row.sealed = len(content), content
        row.save(update_fields=["num_bytes", "sealed"])
        renew_pairs(row)
    return texts


def delete(project_id: int | None, public_id: str) -> None:
    """Raises `NotStored`."""
    remove_all(Q(pk=_row(project_id, public_id).pk))


def remove_all(condition: Q, until_s: float = inf) -> int:
    """Remove these chats in groups. Returns how many."""
    rows = StoredChat.objects.filter(condition).order_by("expires_at").select_for_update()

    def remove() -> int:
        found = list(rows.values_list("pk", "project_id", "num_bytes")[:_REMOVED_AT_ONCE])
        StoredChat.objects.filter(pk__in=[pk for pk, *_ in found]).delete()
        uncount_bytes(found)
        return len(found)

    return repeat(remove, until_s)
