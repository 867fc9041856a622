"""Sealed rows of one owner: what every kind of stored object needs.

All functions block and belong in a thread. Payloads are JSON, which this package does not read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Sum

from vinery_accounts.base import encryption
from vinery_accounts.base.errors import AccountsError
from vinery_accounts.keys.table import Caller
from vinery_accounts.models import ApiKey, ConversationItem, ResponseItem, StoredBytes, StoredItem
from vinery_accounts.models.stored import OwnedQuerySet

PURPOSE: Final = b"vinery stored"


class NotStored(AccountsError):
    """There is no such object for this caller. `what` is its kind, `public_id` what was asked."""

    def __init__(self, what: str, public_id: str) -> None:
        self.what, self.public_id = what, public_id
        super().__init__(f"{what} with id '{public_id[:128]}' not found.")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a row is. All keys of a project see the rows of the project."""

    project_id: int | None
    user_id: int | None = None
    key_id: int | None = None

    @classmethod
    def of(cls, caller: Caller) -> Owner:
        return cls(caller.project_id, caller.user_id, caller.key_id)

    def columns(self) -> dict[str, int | None]:
        return {"project_id": self.project_id, "user_id": self.user_id, "key_id": self.key_id}


def check_keys(owners: Iterable[Owner]) -> None:
    """Raises `NotStored` if the key of one has gone, as it does with its user or project: then all
    that they had stored is deleted."""
    asked = {str(owner.key_id) for owner in owners if owner.key_id is not None}
    known = ApiKey.objects.filter(pk__in=asked).values_list("pk", flat=True) if asked else ()
    for gone in asked - set(map(str, known)):
        raise NotStored("Key", gone)


@dataclass(frozen=True, slots=True)
class Item:
    """An item as JSON. A new item without payload is a reference to a stored one."""

    public_id: str
    kind: str
    payload: bytes


def sealed(public_id: str, payload: bytes) -> bytes:
    return encryption.seal(PURPOSE, payload, bound_to=public_id.encode())


def opened(public_id: str, content: bytes | memoryview) -> bytes:
    """Raises ValueError for a row that was changed, or sealed with a key that is gone."""
    return encryption.unseal(PURPOSE, bytes(content), bound_to=public_id.encode())


def resealed(public_id: str, content: bytes) -> bytes:
    """Raises ValueError as `opened` does."""
    return encryption.resealed(PURPOSE, content, bound_to=public_id.encode())


def opened_items(rows: Iterable[tuple[str, str, bytes]]) -> list[Item]:
    return [Item(id_, kind, opened(id_, content)) for id_, kind, content in rows]


ITEM_COLUMNS: Final = ("public_id", "kind", "sealed")


def _found(project_id: int | None, ids: Sequence[str]) -> OwnedQuerySet[StoredItem]:
    """The owner's items of these ids, as far as they are linked and not expired."""
    now = datetime.now(UTC)
    in_response = ResponseItem.objects.filter(
        item=OuterRef("pk"), response__expires_at__gt=now, response__project_id=project_id
    )
    in_conversation = ConversationItem.objects.filter(item=OuterRef("pk")).exclude(
        conversation__expires_at__lte=now
    )
    rows: OwnedQuerySet[StoredItem] = StoredItem.objects.of(project_id).filter(public_id__in=ids)
    return rows.filter(Exists(in_response) | Exists(in_conversation))


def find_items(project_id: int | None, ids: Sequence[str]) -> Mapping[str, Item]:
    found = _found(project_id, ids).values_list(*ITEM_COLUMNS)
    return {each.public_id: each for each in opened_items(found)}


def store_items(owner: Owner, items: Sequence[Item], now: datetime) -> tuple[list[int], int]:
    """Insert the new items. Returns the primary keys of all, and the bytes of the new ones. Raises
    `NotStored` for a reference to an item that has gone. Within a transaction."""
    references = [each.public_id for each in items if not each.payload]
    known: dict[str, int] = {}
    if references:
        rows = _found(owner.project_id, references)
        known = dict(rows.select_for_update(no_key=True).values_list("public_id", "pk"))
    new = [
        StoredItem(
            public_id=each.public_id,
            kind=each.kind,
            created_at=now,
            num_bytes=len(each.payload),
            sealed=sealed(each.public_id, each.payload),
            **owner.columns(),
        )
        for each in items
        if each.payload
    ]
    StoredItem.objects.bulk_create(new)
    known.update((row.public_id, row.pk) for row in new)
    for each in items:
        if each.public_id not in known:
            raise NotStored("Item", each.public_id)
    return [known[each.public_id] for each in items], sum(row.num_bytes for row in new)


def unlinked(item_ids: Iterable[int]) -> OwnedQuerySet[StoredItem]:
    rows: OwnedQuerySet[StoredItem] = StoredItem.objects.filter(pk__in=set(item_ids))
    return rows.filter(
        ~Exists(ResponseItem.objects.filter(item=OuterRef("pk"))),
        ~Exists(ConversationItem.objects.filter(item=OuterRef("pk"))),
    )


def remove_unlinked(item_ids: Iterable[int]) -> None:
    """Delete those of these items that nothing links any more. Within a transaction. Of two that
    take the last links of an item, the second waits, and sees that the first one is gone."""
    these = StoredItem.objects.filter(pk__in=set(item_ids)).order_by("pk")
    locked = list(these.select_for_update().values_list("pk", flat=True))
    gone = list(unlinked(locked).values_list("pk", "project_id", "num_bytes"))
    StoredItem.objects.filter(pk__in=[pk for pk, *_ in gone]).delete()
    uncount_bytes(gone)


def count_bytes(project_id: int | None, num_bytes: int) -> None:
    """Add to what a project has stored. Within a transaction."""
    if not num_bytes:
        return
    row = StoredBytes.objects.filter(project_id=project_id or 0)
    if not row.update(num_bytes=F("num_bytes") + num_bytes):
        StoredBytes.objects.bulk_create(
            [StoredBytes(project_id=project_id or 0)], ignore_conflicts=True
        )
        row.update(num_bytes=F("num_bytes") + num_bytes)


def repeat(remove: Callable[[], int], until_s: float = inf) -> int:
    """Remove group by group, each in a transaction, until none is left or the time is over. Returns
    how many rows."""
    num_removed, num = 0, 1
    while num and time.monotonic() < until_s:
        with transaction.atomic():
            num = remove()
        num_removed += num
    return num_removed


def uncount_bytes(rows: Iterable[tuple[int, int | None, int]]) -> None:
    """Subtract the bytes of removed rows: their primary keys, projects and bytes. Within a
    transaction."""
    freed: Counter[int | None] = Counter()
    for _, project_id, num_bytes in rows:
        freed[project_id] += num_bytes
    for project_id, num_bytes in freed.items():
        count_bytes(project_id, -num_bytes)


def stored_bytes(project_id: int | None) -> int:
    found = StoredBytes.objects.filter(project_id=project_id or 0).values_list("num_bytes")
    return next((num_bytes for (num_bytes,) in found), 0)


# The most bytes of a page, unless its first object has more.
_PAGE_BYTES: Final = 32 * 2**20


def num_of_page(sizes: Sequence[int], limit: int) -> int:
    """Return how many objects of these sizes come on a page of at most `limit`."""
    num, num_bytes = 0, 0
    for size in sizes[:limit]:
        num_bytes += size
        if num and num_bytes > _PAGE_BYTES:
            break
        num += 1
    return num


def all_stored_bytes() -> int:
    num_bytes: int | None = StoredBytes.objects.aggregate(sum=Sum("num_bytes"))["sum"]
    return num_bytes or 0


def page_of(
    rows: Sequence[tuple[int, str, int]], *, after: str | None, limit: int, is_descending: bool
) -> tuple[list[int], bool] | None:
    """Return the primary keys of a page of `(pk, public id, bytes)` rows in ascending order, and
    whether more rows follow; None if there is no row `after`."""
    ordered = list(reversed(rows)) if is_descending else list(rows)
    if after is not None:
        places = [at for at, (_, public_id, _) in enumerate(ordered) if public_id == after]
        if not places:
            return None
        del ordered[: places[0] + 1]
    num = num_of_page([num_bytes for *_, num_bytes in ordered], limit)
    return [pk for pk, *_ in ordered[:num]], num < len(ordered)


def items_of(pks: Sequence[int]) -> list[Item]:
    """The items of these primary keys, in this order."""
    rows = StoredItem.objects.filter(pk__in=set(pks)).values_list("pk", *ITEM_COLUMNS)
    found = {pk: each for pk, *each in rows}
    return opened_items((found[pk][0], found[pk][1], found[pk][2]) for pk in pks if pk in found)
