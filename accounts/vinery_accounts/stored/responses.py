"""Responses and their chains.

A response has the items of its own input and output only. What came before is the chain of
`previous`, which one recursive query reads. An expired or deleted response can no longer be found,
and stays for the responses that continue it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from vinery_accounts.models import ResponseEvents, ResponseItem, StoredItem, StoredResponse
from vinery_accounts.models.stored import OwnedQuerySet
from vinery_accounts.stored.conversations import append
from vinery_accounts.stored.rows import (
    ITEM_COLUMNS,
    Item,
    NotStored,
    Owner,
    count_bytes,
    items_of,
    opened,
    opened_items,
    page_of,
    remove_unlinked,
    repeat,
    sealed,
    store_items,
    uncount_bytes,
)

# The most responses of a chain. A longer chain is refused where it is continued.
MAX_CHAIN: Final = 1000
FINISHED: Final = ("completed", "incomplete")
_REMOVED_AT_ONCE: Final = 200


class NotContinuable(NotStored):
    """The response is there, but cannot be continued. `reason` says why."""

    def __init__(self, public_id: str, reason: str) -> None:
        super().__init__("Response", public_id)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class NewResponse:
    owner: Owner
    public_id: str
    status: str
    model: str
    request_id: str
    created_at: datetime
    days: int
    payload: bytes  # the response as JSON, without output
    inputs: tuple[Item, ...]
    outputs: tuple[Item, ...]
    previous_id: str | None = None
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True)
class FoundResponse:
    status: str
    payload: bytes
    outputs: list[Item]


def keep(new: NewResponse, *, is_background: bool = False) -> int:
    """Store a response, and return its primary key. A response of the background gets its output
    later, and then joins its conversation. Raises `NotStored` if what it continues has gone
    meanwhile, and `django.db.Error`. Within a transaction."""
    now, project_id = new.created_at, new.owner.project_id
    previous = None
    if new.previous_id is not None:
        rows = StoredResponse.objects.of(project_id).filter(public_id=new.previous_id)
        previous = rows.select_for_update(no_key=True).values_list("pk", flat=True).first()
        if previous is None:
            raise NotStored("Response", new.previous_id)
    pks, num_bytes = store_items(new.owner, (*new.inputs, *new.outputs), now)
    conversation = None
    if new.conversation_id is not None:
        added = () if is_background else pks
        conversation = append(project_id, new.conversation_id, added)
    row = StoredResponse.objects.create(
        public_id=new.public_id,
        status=new.status,
        model=new.model,
        request_id=new.request_id,
        previous_id=previous,
        conversation_id=conversation,
        created_at=now,
        expires_at=now + timedelta(days=new.days),
        num_bytes=len(new.payload),
        sealed=sealed(new.public_id, new.payload),
        is_background=is_background,
        **new.owner.columns(),
    )
    _link(row.pk, pks, len(new.inputs))
    count_bytes(project_id, num_bytes + len(new.payload))
    pk: int = row.pk
    return pk


def _link(pk: int, items: Sequence[int], num_inputs: int, first: int = 0) -> None:
    ResponseItem.objects.bulk_create(
        ResponseItem(response_id=pk, item_id=item, position=at, is_output=at >= num_inputs)
        for at, item in enumerate(items, first)
    )


def complete(pk: int, owner: Owner, status: str, payload: bytes, outputs: Sequence[Item]) -> None:
    """Give a background response its end, and add its items to its conversation if it ended well.
    Within a transaction."""
    now = datetime.now(UTC)
    row = StoredResponse.objects.select_for_update().get(pk=pk)
    inputs = list(row.links.order_by("position").values_list("item_id", flat=True))
    pks, num_bytes = store_items(owner, outputs, now)
    _link(pk, pks, len(inputs), len(inputs))
    if row.conversation is not None and status in FINISHED:
        with suppress(NotStored):  # it was deleted meanwhile
            append(owner.project_id, row.conversation.public_id, [*inputs, *pks])
    count_bytes(owner.project_id, num_bytes + len(payload) - row.num_bytes)
    row.status, row.num_bytes, row.sealed = status, len(payload), sealed(row.public_id, payload)
    row.events_until = now + timedelta(hours=1)
    row.save(update_fields=["status", "num_bytes", "sealed", "events_until"])


def find(project_id: int | None, public_id: str) -> FoundResponse:
    """Raises `NotStored`."""
    row = _row(project_id, public_id)
    links = ResponseItem.objects.filter(response_id=row.pk, is_output=True).order_by("position")
    outputs = opened_items(links.values_list(*(f"item__{name}" for name in ITEM_COLUMNS)))
    return FoundResponse(row.status, opened(row.public_id, row.sealed), outputs)


def _row(project_id: int | None, public_id: str) -> StoredResponse:
    rows = StoredResponse.objects.of(project_id).kept().filter(public_id=public_id)
    found: StoredResponse | None = rows.first()
    if found is None:
        raise NotStored("Response", public_id)
    return found


_CHAIN_SQL: Final = """
WITH RECURSIVE chain (id, previous_id, status, conversation_id, depth) AS (
    SELECT id, previous_id, status, conversation_id, 0 FROM {responses}
    WHERE public_id = %s AND expires_at > %s AND {owner}
    UNION ALL
    SELECT older.id, older.previous_id, older.status, older.conversation_id, chain.depth + 1
    FROM chain JOIN {responses} older ON older.id = chain.previous_id WHERE chain.depth < {depth}
)
SELECT chain.depth, {columns} FROM chain
LEFT JOIN {links} link ON link.response_id = chain.id
LEFT JOIN {items} item ON item.id = link.item_id
ORDER BY chain.depth DESC, link.position
"""


def _chain(
    project_id: int | None, public_id: str, columns: str, *, is_held: bool = False
) -> list[Any]:
    """Rows of the depth (0: this response) and `columns`, from the first item of the chain to the
    last. Raises `NotStored`."""
    sql = _CHAIN_SQL.format(
        responses=StoredResponse._meta.db_table,
        links=ResponseItem._meta.db_table,
        items=StoredItem._meta.db_table,
        owner="project_id IS NULL" if project_id is None else "project_id = %s",
        columns=columns,
        depth=MAX_CHAIN,
    )
    # As the backend stores it: SQLite has texts.
    moment = datetime(1970, 1, 1, tzinfo=UTC) if is_held else datetime.now(UTC)
    now = StoredResponse._meta.get_field("expires_at").get_db_prep_value(moment, connection)
    owner = [] if project_id is None else [project_id]
    with connection.cursor() as cursor:
        cursor.execute(sql, [public_id, now, *owner])
        rows: list[Any] = cursor.fetchall()
    if not rows:
        raise NotStored("Response", public_id)
    return rows


def context(project_id: int | None, public_id: str, *, is_held: bool = False) -> list[Item]:
    """The items of the chain that ends with this response, by one query. `is_held`: another
    response holds it, so it may have expired. Raises `NotStored`, and `NotContinuable`."""
    columns = "chain.status, chain.conversation_id, item.public_id, item.kind, item.sealed"
    rows = _chain(project_id, public_id, columns, is_held=is_held)
    _, status, conversation, *_ = rows[-1]
    if conversation is not None:
        raise NotContinuable(public_id, "belongs to a conversation: send `conversation` instead")
    if status not in FINISHED:
        raise NotContinuable(public_id, f"is {status}: only a finished response can be continued")
    if rows[0][0] >= MAX_CHAIN - 1:
        raise NotContinuable(public_id, f"is the last of {MAX_CHAIN} in a chain: begin another")
    return opened_items(row[3:] for row in rows if row[3] is not None)


def thread(project_id: int | None, public_id: str) -> list[Item]:
    """The items of the chain up to the output of this response. Raises `NotStored`."""
    rows = _chain(project_id, public_id, "item.public_id, item.kind, item.sealed")
    return opened_items(row[1:] for row in rows if row[1] is not None)


def input_items(
    project_id: int | None, public_id: str, *, after: str | None, limit: int, is_descending: bool
) -> tuple[list[Item], bool] | None:
    """A page of what came before the response and of its own input, and whether more follows; None
    if there is no item `after`. Raises `NotStored`."""
    columns = "item.id, item.public_id, item.num_bytes, link.is_output"
    # A later reference to an item does not list it again.
    own = {
        pk: (pk, id_, num_bytes)
        for depth, pk, id_, num_bytes, is_output in _chain(project_id, public_id, columns)
        if pk and (depth or not is_output)
    }
    page = page_of(list(own.values()), after=after, limit=limit, is_descending=is_descending)
    return None if page is None else (items_of(page[0]), page[1])


def delete(project_id: int | None, public_id: str) -> None:
    """Raises `NotStored`. Responses that continue this one stay, with what they need of it."""
    with transaction.atomic():
        row = _row(project_id, public_id)
        StoredResponse.objects.filter(pk=row.pk).update(expires_at=datetime.now(UTC))
        _remove(StoredResponse.objects.filter(pk=row.pk))


def remove_all(condition: Q, until_s: float = inf) -> int:
    """Remove these responses, those that continue others first. Returns how many."""
    # In the order of the index: any further column would sort all that has expired.
    rows = StoredResponse.objects.filter(condition).order_by("-expires_at")
    return repeat(partial(_remove, rows), until_s)


def _remove(rows: OwnedQuerySet[StoredResponse]) -> int:
    """Remove a group of these rows that no other row continues. Within a transaction."""
    continued = StoredResponse.objects.filter(previous=OuterRef("pk"))
    leaves = rows.filter(~Exists(continued)).select_for_update()[:_REMOVED_AT_ONCE]
    found = list(leaves.values_list("pk", "project_id", "num_bytes"))
    pks = [pk for pk, *_ in found]
    remove_events(pks)
    links = ResponseItem.objects.filter(response__in=pks)
    items = list(links.values_list("item_id", flat=True))
    links.delete()
    StoredResponse.objects.filter(pk__in=pks).delete()
    remove_unlinked(items)
    uncount_bytes(found)
    return len(found)


def remove_events(pks: Sequence[int]) -> None:
    """Remove the events of these responses. Within a transaction."""
    rows = ResponseEvents.objects.filter(response__in=pks)
    for project_id, content in rows.values_list("response__project_id", "sealed"):
        count_bytes(project_id, -len(bytes(content)))
    rows.delete()
