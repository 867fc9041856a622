"""Sealed rows of one owner: what every kind of stored object needs.

All functions block and belong in a thread. Payloads are JSON, which this package does not read.

Transactions lock rows in one order, so that none waits in a circle: the run of a response, the
conversation, the response, its events, items, the bytes of the project.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final, TypeVar

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from vinery_accounts.base import encryption
from vinery_accounts.base.errors import AccountsError
from vinery_accounts.models import ApiKey, ConversationItem, ResponseItem, StoredBytes, StoredItem
from vinery_accounts.models.stored import OwnedQuerySet, OwnedRow
from vinery_accounts.usage.entries import Owners

RowT = TypeVar("RowT", bound=OwnedRow)
PURPOSE: Final = b"vinery stored"


class NotStored(AccountsError):
    """There is no such object for this caller. `what` is its kind, `public_id` what was asked."""

    def __init__(self, what: str, public_id: str) -> None:
        self.what, self.public_id = what, public_id
        super().__init__(f"{what} with id '{public_id[:128]}' not found.")


class NoPlace(NotStored):
    """The page follows an object that is not in the list."""


def columns_of(owner: Owners | OwnedRow) -> dict[str, int | None]:
    """Whose a row is. All keys of a project see the rows of the project."""
    return {name: getattr(owner, name) for name in ("project_id", "user_id", "key_id")}


@dataclass(frozen=True, slots=True)
class New:
    """An answer to be stored. A key goes with its user and project: then all that they had stored
    is deleted."""

    owner: Owners
    public_id: str
    model: str
    request_id: str
    created_at: datetime
    days: int

    def insert(self, table: Any, text: bytes, **columns: Any) -> Any:
        columns |= {"model": self.model, "request_id": self.request_id}
        columns["expires_at"] = self.created_at + timedelta(days=self.days)
        columns["days"] = self.days
        return insert(table, self.owner, self.public_id, text, self.created_at, **columns)


def insert(
    table: Any,
    owner: Owners | OwnedRow,
    public_id: str,
    text: bytes,
    now: datetime,
    num_more: int = 0,
    days: int = 1,
    **columns: Any,
) -> Any:
    """Within a transaction, as is each change. `num_more`: the bytes of the items of the row.
    `days`: its term; a row without a term goes with a project's 0 days alone. Raises `NotStored` if
    the key has gone."""
    filled = {"num_bytes": len(text), "sealed": sealed(public_id, text), "created_at": now}
    row: Any = table.objects.create(public_id=public_id, **filled, **columns_of(owner), **columns)
    row.project_bytes = count_bytes(owner.project_id, len(text) + num_more, days, owner.key_id)
    return row


def row_of(
    table: type[RowT], project_id: int | None, public_id: str, *, is_locked: bool = False
) -> RowT:
    """Raises `NotStored`."""
    rows: Any = table.objects.of(project_id).kept().filter(public_id=public_id)
    found: RowT | None = (rows.select_for_update() if is_locked else rows).first()
    if found is None:
        raise NotStored(table.noun, public_id)
    return found


def text_of(row: OwnedRow) -> bytes:
    """Raises ValueError for a row that was changed, or sealed with a key that is gone."""
    return opened(row.public_id, row.sealed)


def rewrite(row: OwnedRow, text: bytes, num_more: int = 0, **columns: Any) -> None:
    """Replace the text and other columns of a locked row. `num_more`: as for `insert`."""
    count_bytes(row.project_id, len(text) - row.num_bytes + num_more)
    columns |= {"num_bytes": len(text), "sealed": sealed(row.public_id, text)}
    for name, value in columns.items():
        setattr(row, name, value)
    row.save(update_fields=list(columns))


def remove(rows: OwnedQuerySet[Any]) -> int:
    """Remove these rows with their bytes. Returns how many."""
    found = list(rows.values_list("pk", "project_id", "num_bytes"))
    rows.model._default_manager.filter(pk__in=[pk for pk, *_ in found]).delete()
    freed: Counter[int | None] = Counter()
    for _, project_id, num_bytes in found:
        freed[project_id] += num_bytes
    for project_id, num_bytes in freed.items():
        count_bytes(project_id, -num_bytes)
    return len(found)


def in_groups(remove_group: Callable[[], int], until_s: float = inf) -> int:
    """Remove group after group, each in a transaction, until none is left or the time is over.
    Returns how many rows."""
    num_removed, num = 0, 1
    while num and time.monotonic() < until_s:
        with transaction.atomic():
            num = remove_group()
        num_removed += num
    return num_removed


def sealed(public_id: str, payload: bytes) -> bytes:
    return encryption.seal(PURPOSE, payload, bound_to=public_id.encode())


def opened(public_id: str, content: bytes | memoryview) -> bytes:
    """Raises ValueError as `text_of` does."""
    return encryption.unseal(PURPOSE, bytes(content), bound_to=public_id.encode())


def resealed(public_id: str, content: bytes) -> bytes:
    return encryption.resealed(PURPOSE, content, bound_to=public_id.encode())


# -- Items


@dataclass(frozen=True, slots=True)
class Item:
    """An item as JSON. A new item without payload is a reference to a stored one."""

    public_id: str
    kind: str
    payload: bytes


ITEM_COLUMNS: Final = ("public_id", "kind", "sealed")
LINKED_COLUMNS: Final = tuple(f"item__{name}" for name in ITEM_COLUMNS)


def opened_items(rows: Iterable[tuple[str, str, bytes | memoryview]]) -> list[Item]:
    return [Item(id_, kind, opened(id_, content)) for id_, kind, content in rows]


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


def items_of(pks: Sequence[int]) -> list[Item]:
    """The items of these primary keys, in this order."""
    rows = StoredItem.objects.in_bulk(pks)
    found = (rows[pk] for pk in pks if pk in rows)
    return opened_items((row.public_id, row.kind, row.sealed) for row in found)


def store_items(
    owner: Owners | OwnedRow, items: Sequence[Item], now: datetime
) -> tuple[list[int], int]:
    """Insert the new items. Returns the primary keys of all, and the bytes of the new ones, which
    the caller counts. Raises `NotStored` for a reference to an item that has gone."""
    known: dict[str, int] = {}
    if references := [each.public_id for each in items if not each.payload]:
        rows = _found(owner.project_id, references)
        known = dict(rows.select_for_update(no_key=True).values_list("public_id", "pk"))
    new = [
        StoredItem(
            public_id=each.public_id,
            kind=each.kind,
            created_at=now,
            num_bytes=len(each.payload),
            sealed=sealed(each.public_id, each.payload),
            **columns_of(owner),
        )
        for each in items
        if each.payload
    ]
    StoredItem.objects.bulk_create(new)
    known.update((row.public_id, row.pk) for row in new)
    for each in items:
        if each.public_id not in known:
            raise NotStored(StoredItem.noun, each.public_id)
    return [known[each.public_id] for each in items], sum(row.num_bytes for row in new)


def remove_unlinked(item_ids: Iterable[int]) -> None:
    """Delete those of these items that nothing links any more. Of two that take the last links of
    an item, the second waits, and sees that the first one is gone."""
    these = StoredItem.objects.filter(pk__in=set(item_ids)).order_by("pk")
    locked = list(these.select_for_update().values_list("pk", flat=True))
    links = (
        table.objects.filter(item=OuterRef("pk")) for table in (ResponseItem, ConversationItem)
    )
    remove(StoredItem.objects.filter(*(~Exists(each) for each in links), pk__in=locked))


# -- The bytes of a project


_COUNT_SQL: Final = """
INSERT INTO {table} (project_id, num_bytes, days)
SELECT %s, %s, %s WHERE %s IS NULL OR EXISTS (SELECT 1 FROM {keys} WHERE id = %s)
ON CONFLICT (project_id) DO UPDATE SET num_bytes = {table}.num_bytes + excluded.num_bytes,
    days = CASE WHEN excluded.days <= {table}.days THEN {table}.days END
RETURNING num_bytes
"""


def count_bytes(
    project_id: int | None, num_bytes: int, days: int = 0, key_id: int | None = None
) -> int:
    """Add to what a project has stored. Returns how much that is then. Others who store wait for
    the end of the transaction, so this comes after other locks. `days`: the term of a new row.
    Raises `NotStored` if the key has gone, which the same statement sees."""
    sql = _COUNT_SQL.format(table=StoredBytes._meta.db_table, keys=ApiKey._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(sql, [project_id or 0, num_bytes, days, key_id, key_id])
        if (found := cursor.fetchone()) is None:
            raise NotStored("Key", str(key_id))
        return int(found[0])


def stored_bytes(project_id: int | None) -> int:
    found = StoredBytes.objects.filter(project_id=project_id or 0)
    return found.values_list("num_bytes", flat=True).first() or 0


# -- Pages

# The most bytes of a page, unless its first object has more.
_PAGE_BYTES: Final = 32 * 2**20


def page_of(
    rows: Sequence[tuple[int, str, int]], *, after: str | None, limit: int, is_descending: bool
) -> tuple[list[int], bool]:
    """Return the primary keys of a page of `(pk, public id, bytes)` rows in ascending order, and
    whether more rows follow. Raises `NoPlace`."""
    ordered = rows[::-1] if is_descending else rows
    if after is not None:
        places = [at for at, (_, public_id, _) in enumerate(ordered) if public_id == after]
        if not places:
            raise NoPlace("Object", after)
        ordered = ordered[places[0] + 1 :]
    return _cut([(pk, num_bytes) for pk, _, num_bytes in ordered[: limit + 1]], limit)


def _cut(rows: Sequence[tuple[int, int]], limit: int) -> tuple[list[int], bool]:
    pks: list[int] = []
    num_bytes = 0
    for pk, size in rows[:limit]:
        num_bytes += size
        if pks and num_bytes > _PAGE_BYTES:
            break
        pks.append(pk)
    return pks, len(pks) < len(rows)


def stored_page(
    rows: Any,
    every: Any,
    keys: Sequence[str],
    item: str = "",
    *,
    after: str | None,
    limit: int,
    is_descending: bool,
) -> tuple[list[int], bool]:
    """Return `page_of` for rows in the order of `keys`. `every`: the rows of which one may be
    `after`. `item`: the prefix of the columns of what is listed."""
    way, sign = ("lt", "-") if is_descending else ("gt", "")
    if after is not None:
        place = every.filter(**{f"{item}public_id": after}).values_list(*keys).first()
        if place is None:
            raise NoPlace("Object", after)
        first, *others = zip(keys, place, strict=True)
        later = Q(**{f"{first[0]}__{way}": first[1]})
        for key, value in others:
            later |= Q(**{first[0]: first[1], f"{key}__{way}": value})
        # A bound of an index, which no alternatives are.
        rows = rows.filter(later, **{f"{first[0]}__{way}e": first[1]})
    ordered = rows.order_by(*(f"{sign}{key}" for key in keys))
    return _cut(list(ordered.values_list(f"{item}pk", f"{item}num_bytes")[: limit + 1]), limit)
