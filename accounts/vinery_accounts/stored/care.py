"""What becomes of stored objects without their clients: terms end, owners go, keys are replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Model, Q, QuerySet, Sum
from django.db.models.functions import Length

from vinery_accounts.models import (
    BackgroundRun,
    Conversation,
    Project,
    ResponseEvents,
    StoredBytes,
    StoredChat,
    StoredItem,
    StoredResponse,
)
from vinery_accounts.models.stored import OwnedRow, expire, follow_days
from vinery_accounts.stored import chats, compactions, conversations, responses, runs
from vinery_accounts.stored.rows import remove_unlinked, resealed, unlinked

# An answer that has run this long may still be stored with the former term of its project.
_LONGEST_ANSWER: Final = timedelta(days=1)
_ITEMS_IN_A_GROUP: Final = 10_000
_SEALED_IN_A_GROUP: Final = 200
_TABLES: Final[tuple[type[OwnedRow], ...]] = (
    *(StoredResponse, StoredItem, Conversation, StoredChat),
)


def sweep(now: datetime) -> int:
    """Remove what has expired and what no owner has any more, in groups. Returns how many rows of
    responses, conversations and chats."""
    _follow_terms(now)
    runs.remove_old_events(now)
    has_expired = Q(expires_at__lte=now)
    num_removed: int = sum(
        each.remove_all(has_expired) for each in (responses, conversations, chats)
    )
    _without_project().filter(num_bytes__lte=0).delete()
    return num_removed


def _follow_terms(now: datetime) -> None:
    """Apply changes to answers that were running then. Clients without keys have the term of the
    first project."""
    first = Project.objects.order_by("pk").values_list("pk", flat=True).first()
    changed = Project.objects.filter(updated_at__gt=now - _LONGEST_ANSWER)
    for pk, days in changed.values_list("pk", "response_days"):
        for project_id in (pk, None) if pk == first else (pk,):
            follow_days(project_id, days or 0, now)
    if gone := list(_without_project().values_list("project_id", flat=True)):
        expire(Q(project_id__in=gone), now)


def _without_project() -> QuerySet[StoredBytes]:
    return StoredBytes.objects.exclude(
        Q(project_id=0) | Q(project_id__in=Project.objects.order_by().values("pk"))
    )


def remove_unlinked_items() -> None:
    """Remove items that nothing links, group by group. Each removal of a link looks after its item:
    this finds what a fault has left."""
    for pks in _groups(StoredItem, _ITEMS_IN_A_GROUP):
        if found := list(unlinked(pks).values_list("pk", flat=True)):
            with transaction.atomic():
                remove_unlinked(found)


def _groups(table: Any, num: int) -> Iterator[list[int]]:
    last = 0
    while pks := list(
        table.objects.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:num]
    ):
        yield pks
        last = pks[-1]


# -- The sums of stored bytes


@dataclass(frozen=True, slots=True)
class WrongSum:
    project_id: int | None
    num_counted: int
    num_bytes: int


def wrong_sums(*, repair: bool = False) -> Iterator[WrongSum]:
    """The projects whose counted bytes are not those of their rows."""
    for pk in list(StoredBytes.objects.order_by("project_id").values_list("pk", flat=True)):
        with transaction.atomic():
            # Who stores or removes something waits for this row, and is not seen before.
            row = StoredBytes.objects.select_for_update().get(pk=pk)
            owned = [table.objects.of(row.project_id or None) for table in _TABLES]
            events = ResponseEvents.objects.filter(response__project_id=row.project_id or None)
            sums = [rows.aggregate(sum=Sum("num_bytes"))["sum"] or 0 for rows in owned]
            num_bytes = sum(sums) + (events.aggregate(sum=Sum(Length("sealed")))["sum"] or 0)
            if num_bytes == row.num_bytes:
                continue
            if repair:
                StoredBytes.objects.filter(pk=pk).update(num_bytes=num_bytes)
        yield WrongSum(row.project_id or None, row.num_bytes, num_bytes)


# -- Reencryption


def reencrypt() -> tuple[int, int]:
    """Seal all texts with the newest key, in groups. A second run goes on where the first one
    ended, because a run writes only what an older key has sealed. Returns how many rows the newest
    key opens then, and how many no configured key can open."""
    is_done: Counter[bool] = Counter()
    tables: tuple[Any, ...] = (*_TABLES, BackgroundRun, ResponseEvents)
    for table in tables:
        for pks in _groups(table, _SEALED_IN_A_GROUP):
            with transaction.atomic():
                rows = table.objects.select_for_update(no_key=True).filter(pk__in=pks)
                is_done.update(map(_is_reencrypted, rows.order_by("pk")))
    return is_done[True], is_done[False]


def _is_reencrypted(row: Model) -> bool:
    bound_to, columns = _sealed_columns(row)
    known = {name: bytes(content) for name in columns if (content := getattr(row, name))}
    try:
        if isinstance(row, StoredItem) and row.kind == compactions.KIND:
            of_item = row.project_id, row.public_id
            new = {"sealed": compactions.resealed_item(*of_item, known["sealed"])}
        else:
            new = {name: resealed(bound_to, content) for name, content in known.items()}
    except ValueError:
        return False
    if new != known:
        type(row)._default_manager.filter(pk=row.pk).update(**new)
        if isinstance(row, StoredChat):
            chats.renew_pairs(row)
    return True


def _sealed_columns(row: Any) -> tuple[str, Sequence[str]]:
    """To what its texts are bound, and their columns."""
    match row:
        case BackgroundRun():
            return row.response.public_id, ("sealed_request", "sealed_trail")
        case ResponseEvents():
            return f"{row.response.public_id} {row.first}", ("sealed",)
    return row.public_id, ("sealed",)
