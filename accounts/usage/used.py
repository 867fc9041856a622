"""How much somebody used since a moment: what quotas are about, and buckets after a start.

Roll-ups tell of whole hours and days, in the same transaction as the rows and so always the
same as these; minutes and rows are read for the broken hour at the beginning alone. Where the
fine tables are deleted already, the beginning moves down to the hour or the day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import Count, F, Model, QuerySet, Sum

from accounts.models.rollups import HourRollup, MinuteRollup, UsageSlice
from accounts.models.usage import UsageRecord
from accounts.usage import cutoffs
from accounts.usage.dimensions import coarsest
from accounts.usage.periods import round_down, round_up
from accounts.usage.rollups import DAY_S, HOUR_S, LEVELS, MINUTE_S, ROLLUP_DIMENSIONS

_MS: Final = 1000
_OWNERS_IN_A_QUERY: Final = 500


@dataclass(frozen=True, slots=True)
class Use:
    """Of one owner. Requests are those that an engine took."""

    num_requests: int = 0
    num_input_tokens: int = 0
    num_output_tokens: int = 0
    weighted_tokens: float = 0.0

    @property
    def num_tokens(self) -> int:
        """Of prompts and answers."""
        return self.num_input_tokens + self.num_output_tokens

    def __add__(self, other: Use) -> Use:
        """Of both together."""
        return Use(
            self.num_requests + other.num_requests,
            self.num_input_tokens + other.num_input_tokens,
            self.num_output_tokens + other.num_output_tokens,
            self.weighted_tokens + other.weighted_tokens,
        )


# Whether a table has all rows from a moment (Unix ms) on.
_IsWhole = Callable[[type[Model], int], bool]

_NOTHING: Final = (0, 0, 0, 0.0)


def used_since(
    since_ms: int, column: str | None = None, owners: Collection[object] = ()
) -> dict[str, Use]:
    """By owner, of the column of usage that says whose it is; None: everybody together, as "".

    Whoever used nothing is not in it. `since_ms` is a Unix time.
    """
    sums: defaultdict[str, tuple[Any, ...]] = defaultdict(lambda: _NOTHING)
    several = sorted(owners, key=str)
    batches = (
        [several[at : at + _OWNERS_IN_A_QUERY] for at in range(0, len(several), _OWNERS_IN_A_QUERY)]
        if column
        else [several]
    )
    kept_since = cutoffs.all_kept_since()

    def is_whole(table: type[Model], at_ms: int) -> bool:
        return kept_since.get(table._meta.model_name, cutoffs.EVER) <= _moment(at_ms)

    pieces = list(_pieces(since_ms, is_whole))
    for some in batches:
        for piece in pieces:
            for owner, *found in _read(piece, column, some):
                sums[str(owner)] = tuple(
                    mine + (more or 0) for mine, more in zip(sums[str(owner)], found, strict=True)
                )
    return {owner: Use(*found) for owner, found in sums.items()}


def each_since(
    since_ms: int, columns: Sequence[str]
) -> Iterator[tuple[int, Sequence[object], Use]]:
    """Of each request by itself, in the order in which they came: when that was (Unix ms), what
    it has in these columns of usage, and what it used."""
    rows = _rows(_Piece(UsageRecord, 0, since_ms, None)).order_by("created_at", "id")
    amounts = ("num_prompt_tokens", "num_output_tokens", "weighted_tokens")
    found = rows.values_list("created_at", *amounts, *columns).iterator()
    for at, num_prompt, num_output, weighted, *has in found:
        yield round(at.timestamp() * _MS), has, Use(1, num_prompt, num_output, weighted)


@dataclass(frozen=True, slots=True)
class _Piece:
    """From `start_ms` to before `end_ms`, which None leaves open, read from one table."""

    table: type[Model]
    unit_s: int
    start_ms: int
    end_ms: int | None


def _pieces(since_ms: int, is_whole: _IsWhole) -> Iterator[_Piece]:
    """Without a gap and without an overlap, from the beginning on."""
    start_ms = _beginning(since_ms, is_whole)
    tables: dict[int, type[Model]] = {0: UsageRecord, **LEVELS}
    for unit_s, table in tables.items():
        coarser_s = {0: MINUTE_S, MINUTE_S: HOUR_S, HOUR_S: DAY_S}.get(unit_s)
        if coarser_s is None:
            yield _Piece(table, unit_s, start_ms, None)
            return
        end_ms = round_up(start_ms, coarser_s * _MS)
        if start_ms < end_ms:
            yield _Piece(*_source(unit_s, table, start_ms, is_whole), start_ms, end_ms)
        start_ms = end_ms


def _source(
    unit_s: int, table: type[Model], at_ms: int, is_whole: _IsWhole
) -> tuple[type[Model], int]:
    """The coarsest table that tells about this time, and its unit."""
    finer = ((table, unit_s), (MinuteRollup, MINUTE_S), (UsageRecord, 0))
    return next((each for each in finer if is_whole(each[0], at_ms)), (table, unit_s))


def _beginning(since_ms: int, is_whole: _IsWhole) -> int:
    """`since_ms`, or the last moment before it that is still told apart."""
    if is_whole(UsageRecord, since_ms):
        return since_ms
    for unit_s, table in ((MINUTE_S, MinuteRollup), (HOUR_S, HourRollup)):
        start_ms = round_down(since_ms, unit_s * _MS)
        if is_whole(table, start_ms):
            return start_ms
    return round_down(since_ms, DAY_S * _MS)


def _read(piece: _Piece, column: str | None, owners: Collection[object]) -> Iterator[Any]:
    rows = _rows(piece) if piece.unit_s == 0 else _rollups(piece, column, owners)
    if column is None:
        found = rows.aggregate(**_sums(piece))
        yield ("", *(found[name] for name in _sums(piece)))
        return
    whose = column if piece.unit_s == 0 else f"slice__{column}"
    yield from (
        rows.filter(**{f"{whose}__in": owners})
        .values(whose)
        .annotate(**_sums(piece))
        .values_list(whose, *_sums(piece))
    )


def _rows(piece: _Piece) -> QuerySet[Any]:
    # What no engine took has no tokens, and was not counted.
    rows = UsageRecord.objects.filter(
        num_prompt_tokens__gt=0, created_at__gte=_moment(piece.start_ms)
    )
    if piece.end_ms is not None:
        rows = rows.filter(created_at__lt=_moment(piece.end_ms))
    return rows.order_by()


def _rollups(piece: _Piece, column: str | None, owners: Collection[object]) -> QuerySet[Any]:
    dimensions = coarsest(ROLLUP_DIMENSIONS[piece.unit_s], {column} if column else set())
    slices = UsageSlice.objects.filter(grain=dimensions)
    if column:
        slices = slices.filter(**{f"{column}__in": owners})
    rows = LEVELS[piece.unit_s]._default_manager.filter(
        slice__in=slices, start_s__gte=piece.start_ms // _MS
    )
    if piece.end_ms is not None:
        rows = rows.filter(start_s__lt=piece.end_ms // _MS)
    return rows.order_by()


def _sums(piece: _Piece) -> dict[str, Any]:
    num_requests: Any = Count("id") if piece.unit_s == 0 else Sum(F("num_taken"))
    return {
        "sum_requests": num_requests,
        "sum_inputs": Sum("num_prompt_tokens"),
        "sum_outputs": Sum("num_output_tokens"),
        "sum_weighted": Sum("weighted_tokens"),
    }


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / _MS, UTC)
