"""Conversations: items in the order in which they were added, and a lock for the one response that
runs in a conversation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final

from django.db import transaction
from django.db.models import Q, QuerySet

from vinery_accounts.models import Conversation, ConversationItem
from vinery_accounts.stored.rows import (
    ITEM_COLUMNS,
    Item,
    NotStored,
    Owner,
    count_bytes,
    items_of,
    num_of_page,
    opened,
    opened_items,
    remove_unlinked,
    sealed,
    store_items,
)

# A lock ends by itself if its holder dies, and is renewed while the response runs.
LOCK_S: Final = 30.0
_REMOVED_AT_ONCE: Final = 1000


class ConversationLocked(NotStored):
    """Another response runs in the conversation."""


@dataclass(frozen=True, slots=True)
class FoundConversation:
    public_id: str
    created_at: datetime
    payload: bytes  # the metadata as JSON


def create(
    owner: Owner, public_id: str, metadata: bytes, items: Sequence[Item]
) -> FoundConversation:
    """Raises `NotStored` for a reference to an item that is not there."""
    now = datetime.now(UTC)
    with transaction.atomic():
        row = Conversation.objects.create(
            public_id=public_id,
            created_at=now,
            num_bytes=len(metadata),
            sealed=sealed(public_id, metadata),
            **owner.columns(),
        )
        count_bytes(owner.project_id, row.num_bytes)
        _store(owner, row, items, now)
    return FoundConversation(public_id, now, metadata)


def _row(project_id: int | None, public_id: str, *, is_locked: bool = False) -> Conversation:
    rows = Conversation.objects.of(project_id).kept().filter(public_id=public_id)
    found: Conversation | None = (rows.select_for_update() if is_locked else rows).first()
    if found is None:
        raise NotStored("Conversation", public_id)
    return found


def find(project_id: int | None, public_id: str) -> FoundConversation:
    """Raises `NotStored`."""
    row = _row(project_id, public_id)
    return FoundConversation(row.public_id, row.created_at, opened(row.public_id, row.sealed))


def update(project_id: int | None, public_id: str, metadata: bytes) -> FoundConversation:
    """Replace the metadata. Raises `NotStored`."""
    with transaction.atomic():
        row = _row(project_id, public_id, is_locked=True)
        count_bytes(project_id, len(metadata) - row.num_bytes)
        row.num_bytes, row.sealed = len(metadata), sealed(public_id, metadata)
        row.save(update_fields=["num_bytes", "sealed"])
    return FoundConversation(row.public_id, row.created_at, metadata)


def delete(project_id: int | None, public_id: str) -> None:
    """Delete the conversation, and those of its items that no response has. Raises `NotStored`."""
    remove_all(Q(pk=_row(project_id, public_id).pk))


def remove_all(condition: Q, until_s: float = inf) -> int:
    """Remove these conversations, each with its items in groups. Returns how many there were."""
    num_removed, rows = 0, Conversation.objects.filter(condition).order_by("expires_at")
    while time.monotonic() < until_s and (row := rows.first()):
        while True:
            with transaction.atomic():
                links = ConversationItem.objects.filter(conversation=row.pk)
                found = dict(links.values_list("pk", "item_id")[:_REMOVED_AT_ONCE])
                ConversationItem.objects.filter(pk__in=found).delete()
                remove_unlinked(found.values())
                if not found:
                    row.delete()
                    count_bytes(row.project_id, -row.num_bytes)
                    break
        num_removed += 1
    return num_removed


# -- Items


def append(project_id: int | None, public_id: str, item_pks: Sequence[int]) -> int:
    """Link stored items at the end. Returns the primary key of the conversation. Raises
    `NotStored`. Within a transaction."""
    row = _row(project_id, public_id, is_locked=True)
    _link(row, item_pks)
    pk: int = row.pk
    return pk


def _link(row: Conversation, item_pks: Sequence[int]) -> None:
    """An item that is there stays where it is."""
    links = ConversationItem.objects.filter(conversation=row.pk, item__in=item_pks)
    known = set(links.values_list("item_id", flat=True))
    new = [pk for pk in dict.fromkeys(item_pks) if pk not in known]
    ConversationItem.objects.bulk_create(
        ConversationItem(conversation_id=row.pk, item_id=pk, position=row.next_position + at)
        for at, pk in enumerate(new)
    )
    row.next_position += len(new)
    row.save(update_fields=["next_position"])


def add(owner: Owner, public_id: str, items: Sequence[Item]) -> list[Item]:
    """Store items at the end. Returns them, with what references name. Raises `NotStored`."""
    with transaction.atomic():
        row = _row(owner.project_id, public_id, is_locked=True)
        return items_of(_store(owner, row, items, datetime.now(UTC)))


def _store(owner: Owner, row: Conversation, items: Sequence[Item], now: datetime) -> list[int]:
    pks, num_bytes = store_items(owner, items, now)
    _link(row, pks)
    count_bytes(owner.project_id, num_bytes)
    return pks


def context(project_id: int | None, public_id: str) -> list[Item]:
    """All items in their order. Raises `NotStored`."""
    return _items(ConversationItem.objects.filter(conversation=_row(project_id, public_id).pk))


def _items(links: QuerySet[ConversationItem]) -> list[Item]:
    ordered = links.order_by("position")
    return opened_items(ordered.values_list(*(f"item__{name}" for name in ITEM_COLUMNS)))


def items(
    project_id: int | None, public_id: str, *, after: str | None, limit: int, is_descending: bool
) -> tuple[list[Item], bool] | None:
    """A page of items, and whether more follow; None if there is no item `after`. Raises
    `NotStored`."""
    links = ConversationItem.objects.filter(conversation=_row(project_id, public_id).pk)
    if after is not None:
        place = links.filter(item__public_id=after).values_list("position", flat=True).first()
        if place is None:
            return None
        links = links.filter(**{"position__lt" if is_descending else "position__gt": place})
    ordered = links.order_by("-position" if is_descending else "position")
    found = list(ordered.values_list("item_id", "item__num_bytes")[: limit + 1])
    num = num_of_page([num_bytes for _, num_bytes in found], limit)
    return items_of([pk for pk, _ in found[:num]]), num < len(found)


def find_item(project_id: int | None, public_id: str, item_id: str) -> Item:
    """Raises `NotStored`."""
    links = ConversationItem.objects.filter(conversation=_row(project_id, public_id).pk)
    found = _items(links.filter(item__public_id=item_id))
    if not found:
        raise NotStored("Item", item_id)
    return found[0]


def delete_item(project_id: int | None, public_id: str, item_id: str) -> FoundConversation:
    """Take an item out of the conversation. Raises `NotStored`."""
    with transaction.atomic():
        row = _row(project_id, public_id, is_locked=True)
        links = ConversationItem.objects.filter(conversation=row.pk, item__public_id=item_id)
        found = list(links.values_list("item_id", flat=True))
        if not found:
            raise NotStored("Item", item_id)
        links.delete()
        remove_unlinked(found)
    return FoundConversation(row.public_id, row.created_at, opened(row.public_id, row.sealed))


# -- The lock


def lock(project_id: int | None, public_id: str, holder: str) -> None:
    """Raises `ConversationLocked` while another response runs in the conversation, and
    `NotStored`."""
    now = datetime.now(UTC)
    rows = Conversation.objects.of(project_id).kept(now).filter(public_id=public_id)
    free = rows.filter(Q(locked_until=None) | Q(locked_until__lte=now) | Q(locked_by=holder))
    if not free.update(locked_by=holder, locked_until=now + timedelta(seconds=LOCK_S)):
        _row(project_id, public_id)
        raise ConversationLocked("Conversation", public_id)


def renew(holders: Iterable[str]) -> None:
    until = datetime.now(UTC) + timedelta(seconds=LOCK_S)
    Conversation.objects.filter(locked_by__in=list(holders)).update(locked_until=until)


def unlock(holder: str) -> None:
    Conversation.objects.filter(locked_by=holder).update(locked_by=None, locked_until=None)
