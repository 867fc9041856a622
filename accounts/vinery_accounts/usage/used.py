"""The usage of owners since a time, for quotas, and for buckets after a start.

Whole hours and days come from roll-ups, which equal the records. Only the partial hour at the
beginning is read from minutes and records. Where these have been deleted, the beginning moves
down to the hour or the day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from django.db.models import Count, F, Max, Model, QuerySet, Sum

from vinery_accounts.models.usage import UsageRecord, UsageSlice
from vinery_accounts.usage import retention
from vinery_accounts.usage.periods import round_down, round_up
from vinery_accounts.usage.rollups import DAY_S, LEVELS, MINUTE_S, ROLLUP_DIMENSIONS, coarsest

_MS: Final = 1000
_OWNERS_IN_A_QUERY: Final = 500
_MAX_END_USERS: Final = 50_000  # of a project: limiters in memory count no more


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of one owner. Requests are those that an engine accepted."""

    num_requests: int = 0
    num_input_tokens: int = 0
    num_output_tokens: int = 0
    weighted_tokens: float = 0.0

    @property
    def num_tokens(self) -> int:
        return self.num_input_tokens + self.num_output_tokens

    def __add__(self, other: Use) -> Use:
        return Use(
            self.num_requests + other.num_requests,
            self.num_input_tokens + other.num_input_tokens,
            self.num_output_tokens + other.num_output_tokens,
            self.weighted_tokens + other.weighted_tokens,
        )


# Whether a table has all rows from a time (Unix ms) on.
_IsWhole = Callable[[type[Model], int], bool]

# From records to roll-ups of days, by the unit in seconds.
_TABLES: Final[dict[int, type[Model]]] = {0: UsageRecord, **LEVELS}


def used_since(
    since_ms: int, column: str | None = None, owners: Collection[object] = ()
) -> dict[str, Use]:
    """Return the usage since a Unix time in milliseconds, by owner. `column` is the usage column
    with the owner; None sums all usage, with the owner "". Owners without usage are missing."""
    sums: defaultdict[str, Use] = defaultdict(Use)
    kept_since = retention.all_kept_since()

    def is_whole(table: type[Model], at_ms: int) -> bool:
        return kept_since[table] <= _moment(at_ms)

    segments = list(_segments(since_ms, is_whole))
    several = sorted(owners, key=str)
    for at in range(0, len(several) if column else 1, _OWNERS_IN_A_QUERY):
        for segment in segments:
            for owner, *amounts in _read(segment, column, several[at : at + _OWNERS_IN_A_QUERY]):
                sums[str(owner)] += Use(*(amount or 0 for amount in amounts))
    return dict(sums)


def used_by_end_users(since_ms: int, project_id: str) -> dict[str, Use]:
    """Return the usage of a project since a Unix time in milliseconds, by end user: of those that
    came last, the last one at the end. Roll-ups have no end users: deleted records are missing."""
    segment = _Segment(0, since_ms, None)
    sums = _sums(segment)
    rows = _rows(segment).filter(project_id=project_id).exclude(end_user="")
    last = rows.values("end_user").annotate(last=Max("created_at"), **sums).order_by("-last")
    found = last.values_list("end_user", *sums)[:_MAX_END_USERS]
    return {end_user: Use(*amounts) for end_user, *amounts in reversed(list(found))}


def each_since(
    since_ms: int, columns: Sequence[str]
) -> Iterator[tuple[int, Sequence[object], Use]]:
    """Yield each request since a Unix time in milliseconds, in order of arrival. An item is the
    arrival (Unix ms), the values of `columns`, and the usage."""
    rows = _rows(_Segment(0, since_ms, None)).order_by("created_at", "id")
    amounts = ("num_prompt_tokens", "num_output_tokens", "weighted_tokens")
    found = rows.values_list("created_at", *amounts, *columns).iterator()
    for at, num_prompt, num_output, weighted, *has in found:
        yield round(at.timestamp() * _MS), has, Use(1, num_prompt, num_output, weighted)


@dataclass(frozen=True, slots=True)
class _Segment:
    """A period that is read from roll-ups of `unit_s`; 0: from records. `end_ms` is exclusive;
    None leaves it open."""

    unit_s: int
    start_ms: int
    end_ms: int | None


def _segments(since_ms: int, is_whole: _IsWhole) -> Iterator[_Segment]:
    start_ms = _beginning(since_ms, is_whole)
    for unit_s, coarser_s in pairwise(_TABLES):
        end_ms = round_up(start_ms, coarser_s * _MS)
        if start_ms < end_ms:
            units_s = (unit_s, MINUTE_S, 0)
            whole_s = (each for each in units_s if is_whole(_TABLES[each], start_ms))
            yield _Segment(next(whole_s, unit_s), start_ms, end_ms)
        start_ms = end_ms
    yield _Segment(DAY_S, start_ms, None)


def _beginning(since_ms: int, is_whole: _IsWhole) -> int:
    """Return `since_ms`, or the latest earlier time at which a complete table has a border."""
    for unit_s, table in _TABLES.items():
        start_ms = round_down(since_ms, unit_s * _MS or 1)
        if is_whole(table, start_ms):
            break
    return start_ms


def _read(segment: _Segment, column: str | None, owners: Collection[object]) -> Iterable[Any]:
    rows = _rows(segment) if segment.unit_s == 0 else _rollups(segment, column, owners)
    sums = _sums(segment)
    if column is None:
        totals = rows.aggregate(**sums)
        return [("", *(totals[name] for name in sums))]
    whose = column if segment.unit_s == 0 else f"slice__{column}"
    of_owners = rows.filter(**{f"{whose}__in": owners}).values(whose)
    found: Iterable[Any] = of_owners.annotate(**sums).values_list(whose, *sums)
    return found


def _rows(segment: _Segment) -> QuerySet[Any]:
    # Requests that no engine accepted have no tokens, and limits did not count them.
    rows = UsageRecord.objects.filter(
        num_prompt_tokens__gt=0, created_at__gte=_moment(segment.start_ms)
    )
    if segment.end_ms is not None:
        rows = rows.filter(created_at__lt=_moment(segment.end_ms))
    return rows.order_by()


def _rollups(segment: _Segment, column: str | None, owners: Collection[object]) -> QuerySet[Any]:
    dimensions = coarsest(ROLLUP_DIMENSIONS[segment.unit_s], {column} if column else set())
    slices = UsageSlice.objects.filter(dimensions=dimensions)
    if column:
        slices = slices.filter(**{f"{column}__in": owners})
    rows = LEVELS[segment.unit_s]._default_manager.filter(
        slice__in=slices, start_s__gte=segment.start_ms // _MS
    )
    if segment.end_ms is not None:
        rows = rows.filter(start_s__lt=segment.end_ms // _MS)
    return rows.order_by()


def _sums(segment: _Segment) -> dict[str, Any]:
    num_requests: Any = Count("id") if segment.unit_s == 0 else Sum(F("num_taken"))
    return {
        "sum_requests": num_requests,
        "sum_inputs": Sum("num_prompt_tokens"),
        "sum_outputs": Sum("num_output_tokens"),
        "sum_weighted": Sum("weighted_tokens"),
    }


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / _MS, UTC)
