"""Responses and their chains.

A response has the items of its own input and output only. What came before is the chain of
`previous`, which one recursive query reads. An expired or deleted response can no longer be found,
and stays for the responses that continue it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from vinery_accounts.models import (
    BackgroundRun,
    Conversation,
    ResponseItem,
    StoredItem,
    StoredResponse,
)
from vinery_accounts.models.stored import OwnedQuerySet
from vinery_accounts.stored import conversations, rows
from vinery_accounts.stored.rows import Item, New, NotStored, row_of, store_items

# The most responses of a chain. A longer chain is refused where it is continued.
MAX_CHAIN: Final = 1000
FINISHED: Final = ("completed", "incomplete")
EVENTS_KEPT: Final = timedelta(hours=1)
_REMOVED_AT_ONCE: Final = 200
End = tuple[str, bytes, Sequence[Item]]  # status, payload and outputs


class NotContinuable(NotStored):
    """The response is there, but cannot be continued. `reason` says why."""

    def __init__(self, public_id: str, reason: str) -> None:
        super().__init__(StoredResponse.noun, public_id)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class NewResponse(New):
    """`payload` is the response as JSON, without output."""

    status: str
    payload: bytes
    inputs: tuple[Item, ...]
    outputs: tuple[Item, ...]
    previous_id: str | None = None
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True)
class FoundResponse:
    status: str
    payload: bytes
    outputs: list[Item]


def keep(new: NewResponse) -> StoredResponse:
    """Store a response. A queued one gets its output later, and then joins its conversation. Raises
    `NotStored` if what it continues has gone meanwhile, and `django.db.Error`. Within a
    transaction."""
    is_background, project_id = new.status == "queued", new.owner.project_id
    previous = conversation = None
    if new.previous_id is not None:
        previous = _locked(project_id, new.previous_id)
    if new.conversation_id is not None:
        conversation = row_of(Conversation, project_id, new.conversation_id, is_locked=True)
    pks, num_bytes = store_items(new.owner, (*new.inputs, *new.outputs), new.created_at)
    if conversation is not None and not is_background:
        conversations.link(conversation, pks)
    row: StoredResponse = new.insert(
        StoredResponse,
        new.payload,
        num_more=num_bytes,
        status=new.status,
        previous_id=previous,
        conversation=conversation,
        is_background=is_background,
    )
    _link(row, pks, len(new.inputs))
    return row


def _locked(project_id: int | None, public_id: str) -> int:
    """The primary key of a response, also of an expired one. Raises `NotStored`."""
    rows = StoredResponse.objects.of(project_id).filter(public_id=public_id)
    pk: int | None = rows.select_for_update(no_key=True).values_list("pk", flat=True).first()
    if pk is None:
        raise NotStored(StoredResponse.noun, public_id)
    return pk


def _link(row: StoredResponse, items: Sequence[int], num_inputs: int, first: int = 0) -> None:
    ResponseItem.objects.bulk_create(
        ResponseItem(response=row, item_id=item, position=at, is_output=at >= num_inputs)
        for at, item in enumerate(items, first)
    )


def complete(row: StoredResponse, end: End) -> None:
    """Give a background response its end, and add its items to its conversation if it ended well.
    Within a transaction."""
    now, (status, payload, outputs) = datetime.now(UTC), end
    conversation = None  # also if it was deleted meanwhile
    if row.conversation_id is not None and status in FINISHED:
        found = Conversation.objects.kept(now).filter(pk=row.conversation_id)
        conversation = found.select_for_update().first()
    row = StoredResponse.objects.select_for_update().get(pk=row.pk)
    inputs = list(row.links.order_by("position").values_list("item_id", flat=True))
    pks, num_bytes = store_items(row, outputs, now)
    _link(row, pks, len(inputs), len(inputs))
    if conversation is not None:
        conversations.link(conversation, [*inputs, *pks])
    rows.rewrite(row, payload, num_bytes, status=status, events_until=now + EVENTS_KEPT)


def find(project_id: int | None, public_id: str) -> FoundResponse:
    """Raises `NotStored`."""
    row = row_of(StoredResponse, project_id, public_id)
    links = row.links.filter(is_output=True).order_by("position")
    outputs = rows.opened_items(links.values_list(*rows.LINKED_COLUMNS))
    return FoundResponse(row.status, rows.text_of(row), outputs)


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
_TEXTS: Final = "item.public_id, item.kind, item.sealed, chain.status, chain.conversation_id"


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
        found: list[Any] = cursor.fetchall()
    if not found:
        raise NotStored(StoredResponse.noun, public_id)
    return found


def context(project_id: int | None, public_id: str, *, is_held: bool = False) -> list[Item]:
    """The items of the chain that ends with this response, by one query. `is_held`: another
    response holds it, so it may have expired. Raises `NotStored`, and `NotContinuable`."""
    found = _chain(project_id, public_id, _TEXTS, is_held=is_held)
    *_, status, conversation = found[-1]
    if conversation is not None:
        raise NotContinuable(public_id, "belongs to a conversation: send `conversation` instead")
    if status not in FINISHED:
        raise NotContinuable(public_id, f"is {status}: only a finished response can be continued")
    if found[0][0] >= MAX_CHAIN - 1:
        raise NotContinuable(public_id, f"is the last of {MAX_CHAIN} in a chain: begin another")
    return _items(found)


def thread(project_id: int | None, public_id: str) -> list[Item]:
    """The items of the chain up to the output of this response. Raises `NotStored`."""
    return _items(_chain(project_id, public_id, _TEXTS))


def _items(chain: Sequence[Any]) -> list[Item]:
    return rows.opened_items(row[1:4] for row in chain if row[1] is not None)


def input_items(project_id: int | None, public_id: str, **place: Any) -> tuple[list[Item], bool]:
    """A page of what came before the response and of its own input, as `rows.page_of`."""
    columns = "item.id, item.public_id, item.num_bytes, link.is_output"
    # A later reference to an item does not list it again.
    own = {
        pk: (pk, id_, num_bytes)
        for depth, pk, id_, num_bytes, is_output in _chain(project_id, public_id, columns)
        if pk and (depth or not is_output)
    }
    pks, has_more = rows.page_of(list(own.values()), **place)
    return rows.items_of(pks), has_more


def delete(project_id: int | None, public_id: str) -> None:
    """Raises `NotStored`. Responses that continue this one stay, with what they need of it."""
    with transaction.atomic():
        pk = row_of(StoredResponse, project_id, public_id).pk
        row = StoredResponse.objects.filter(pk=pk)
        row.update(expires_at=datetime.now(UTC))
        _remove(row)


def remove_all(condition: Q, until_s: float = inf) -> int:
    """Remove these responses, those that continue others first. Returns how many."""
    # In the order of the index: any further column would sort all that has expired.
    found = StoredResponse.objects.filter(condition).order_by("-expires_at")
    return rows.in_groups(lambda: _remove(found), until_s)


def _remove(these: OwnedQuerySet[StoredResponse]) -> int:
    """Remove a group of these rows that no other row continues. Within a transaction."""
    continued = StoredResponse.objects.filter(previous=OuterRef("pk"))
    leaves = these.filter(~Exists(continued)).values_list("pk", flat=True)
    found = list(leaves[:_REMOVED_AT_ONCE])
    runs = BackgroundRun.objects.filter(response__in=found).order_by("pk")
    for rows_of_group in (runs, StoredResponse.objects.filter(pk__in=found).order_by("pk")):
        list(rows_of_group.select_for_update().values_list("pk"))
    pks = list(leaves.filter(pk__in=found))  # that nobody continued meanwhile
    runs.filter(response__in=pks).delete()
    links = ResponseItem.objects.filter(response__in=pks)
    items = list(links.values_list("item_id", flat=True))
    links.delete()
    rows.remove_unlinked(items)
    return rows.remove(StoredResponse.objects.filter(pk__in=pks))
