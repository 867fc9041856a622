"""Conversations: items in the order in which they were added, and a lock for the one response that
runs in a conversation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from vinery_accounts.models import Conversation, ConversationItem, StoredItem
from vinery_accounts.stored import rows
from vinery_accounts.stored.rows import Item, NotStored, items_of, row_of, store_items
from vinery_accounts.usage.entries import Owners

# A lock ends by itself if its holder dies, and is renewed while the response runs. It goes by the
# clock of the database: those of hosts differ.
LOCK_S: Final = 30.0
_REMOVED_AT_ONCE: Final = 1000


class ConversationLocked(NotStored):
    """Another response runs in the conversation."""


def create(owner: Owners, public_id: str, metadata: bytes, items: Sequence[Item]) -> Conversation:
    """Raises `NotStored` for a reference to an item that is not there."""
    now = datetime.now(UTC)
    with transaction.atomic():
        pks, num_bytes = store_items(owner, items, now)
        row: Conversation = rows.insert(Conversation, owner, public_id, metadata, now, num_bytes)
        link(row, pks)
    return row


def find(project_id: int | None, public_id: str) -> Conversation:
    """Raises `NotStored`, as all of these do."""
    return row_of(Conversation, project_id, public_id)


def update(project_id: int | None, public_id: str, metadata: bytes) -> Conversation:
    with transaction.atomic():
        row = row_of(Conversation, project_id, public_id, is_locked=True)
        rows.rewrite(row, metadata)
    return row


def delete(project_id: int | None, public_id: str) -> None:
    """Delete the conversation, and those of its items that no response has."""
    remove_all(Q(pk=find(project_id, public_id).pk))


def remove_all(condition: Q, until_s: float = inf) -> int:
    """Remove these conversations, each with its items in groups. Returns how many there were."""
    num_removed, these = 0, Conversation.objects.filter(condition).order_by("expires_at")
    while time.monotonic() < until_s:
        with transaction.atomic():
            if (row := these.select_for_update().first()) is None:
                break
            found = dict(row.links.values_list("pk", "item_id")[:_REMOVED_AT_ONCE])
            row.links.filter(pk__in=found).delete()
            rows.remove_unlinked(found.values())
            if not found:
                num_removed += rows.remove(Conversation.objects.filter(pk=row.pk))
    return num_removed


# -- Items


def link(row: Conversation, item_pks: Sequence[int]) -> None:
    """Link stored items at the end of a locked row. An item that is there stays where it is."""
    known = set(row.links.filter(item__in=item_pks).values_list("item_id", flat=True))
    new = [pk for pk in dict.fromkeys(item_pks) if pk not in known]
    ConversationItem.objects.bulk_create(
        ConversationItem(conversation_id=row.pk, item_id=pk, position=row.next_position + at)
        for at, pk in enumerate(new)
    )
    row.next_position += len(new)
    row.save(update_fields=["next_position"])


def add(owner: Owners, public_id: str, items: Sequence[Item]) -> list[Item]:
    """Store items at the end. Returns them, with what references name."""
    with transaction.atomic():
        row = row_of(Conversation, owner.project_id, public_id, is_locked=True)
        pks, num_bytes = store_items(owner, items, datetime.now(UTC))
        link(row, pks)
        rows.count_bytes(owner.project_id, num_bytes)
        return items_of(pks)


def context(project_id: int | None, public_id: str) -> list[Item]:
    return _items(find(project_id, public_id).links.all())


def _items(links: QuerySet[ConversationItem]) -> list[Item]:
    return rows.opened_items(links.order_by("position").values_list(*rows.LINKED_COLUMNS))


def items(project_id: int | None, public_id: str, **place: Any) -> tuple[list[Item], bool]:
    """A page of items, as `rows.stored_page`."""
    links = find(project_id, public_id).links.all()
    pks, has_more = rows.stored_page(links, links, ("position",), "item__", **place)
    return items_of(pks), has_more


def find_item(project_id: int | None, public_id: str, item_id: str) -> Item:
    for item in _items(find(project_id, public_id).links.filter(item__public_id=item_id)):
        return item
    raise NotStored(StoredItem.noun, item_id)


def delete_item(project_id: int | None, public_id: str, item_id: str) -> Conversation:
    with transaction.atomic():
        row = row_of(Conversation, project_id, public_id, is_locked=True)
        links = row.links.filter(item__public_id=item_id)
        if not (found := list(links.values_list("item_id", flat=True))):
            raise NotStored(StoredItem.noun, item_id)
        links.delete()
        rows.remove_unlinked(found)
    return row


# -- The lock


def lock(project_id: int | None, public_id: str, holder: str) -> None:
    """Raises `ConversationLocked` while another response runs in the conversation."""
    wanted = Conversation.objects.of(project_id).kept().filter(public_id=public_id)
    free = wanted.filter(Q(locked_until=None) | Q(locked_until__lte=Now()) | Q(locked_by=holder))
    if not free.update(locked_by=holder, locked_until=Now() + timedelta(seconds=LOCK_S)):
        find(project_id, public_id)
        raise ConversationLocked(Conversation.noun, public_id)


def renew(holders: Iterable[str]) -> None:
    until = Now() + timedelta(seconds=LOCK_S)
    Conversation.objects.filter(locked_by__in=list(holders)).update(locked_until=until)


def unlock(holder: str) -> None:
    Conversation.objects.filter(locked_by=holder).update(locked_by=None, locked_until=None)
