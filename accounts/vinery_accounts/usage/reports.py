"""Reports of usage: totals, series over time and the largest groups, with percentiles.

Reports read roll-ups: the dimensions with the fewest rows that have the needed columns, and
for each period the coarsest unit with its borders (`periods`). A period is widened to whole
minutes, or to whole hours or days where shorter units have been deleted; the results contain
the actual borders. Reports about end users read usage records, as long as these are kept, and
have no percentiles.

Every function takes the usage that the reader may see, from `access/access`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from http import HTTPStatus
from itertools import chain, pairwise
from typing import Any, Final

from django.db.models import (
    Aggregate,
    BigIntegerField,
    BinaryField,
    Case,
    Count,
    F,
    Max,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Cast

from vinery_accounts.base.errors import QUOTA_EXCEEDED
from vinery_accounts.models import HourRollup, MinuteRollup, UsageRecord, UsageSlice
from vinery_accounts.usage import histogram, periods, retention
from vinery_accounts.usage.entries import Outcome, TokenCounts
from vinery_accounts.usage.filters import (
    ANY,
    NOTHING,
    Conditions,
    Dimension,
    Key,
    among,
    columns_of,
    restriction,
)
from vinery_accounts.usage.histogram import Percentiles
from vinery_accounts.usage.periods import Granularity, Kept, Reading, moment_of, seconds_of
from vinery_accounts.usage.rollups import (
    LATENCIES,
    LEVELS,
    OF_ROWS,
    ROLLUP_DIMENSIONS,
    SUMS,
    RollupDimensions,
    coarsest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query from `since` to before `until`. `granularity` None depends on the length of the
    period. Raises ValueError if a time has no time zone or the period is empty."""

    since: datetime
    until: datetime
    filters: Conditions = field(default_factory=dict)
    visible: Conditions | None  # None: everything
    zone: tzinfo = UTC
    granularity: Granularity | None = None

    def __post_init__(self) -> None:
        if self.since.tzinfo is None or self.until.tzinfo is None:
            raise ValueError("since and until need a time zone")
        if not self.since < self.until:
            raise ValueError("The period is empty: it ends before it begins.")

    @property
    def point(self) -> Granularity:
        return self.granularity or periods.usual_granularity(self.since, self.until)


class Figures(TokenCounts, frozen=True, kw_only=True):
    """Aggregated usage. Latencies are None if nothing was measured. `total_ms` is the latency of
    whole answers."""

    num_requests: int = 0
    num_errors: int = 0
    num_taken: int = 0  # requests that an engine accepted: these count for limits
    # Errors by known cause; answers that a limit ended are no errors.
    num_limited: int = 0
    num_client_errors: int = 0
    num_server_errors: int = 0
    num_cut_short: int = 0
    num_media: int = 0  # pictures, videos and files
    num_media_bytes: int = 0
    num_media_pixels: int = 0  # that models saw
    weighted_tokens: float = 0.0
    cost: float = 0.0  # in millionths of the currency
    first_token_ms: Percentiles | None = None
    inter_token_ms: Percentiles | None = None
    total_ms: Percentiles | None = None
    queue_ms: Percentiles | None = None

    @property
    def num_media_tokens(self) -> int:
        return self.num_image_tokens + self.num_video_tokens


@dataclass(frozen=True, slots=True)
class Point:
    """The usage from `since` to before `until`: of a whole period, or of one point of a series."""

    since: datetime
    until: datetime
    figures: Figures


@dataclass(frozen=True, slots=True)
class Group:
    """Usage with the same values of the grouping dimensions. `names` are the latest names of ids.
    `points` is empty unless requested."""

    values: tuple[Key, ...]
    names: tuple[str, ...]
    figures: Figures
    points: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Groups:
    """The largest groups first. `num_groups` includes groups that are not listed."""

    since: datetime
    until: datetime
    num_groups: int
    groups: tuple[Group, ...]


def totals(question: Question, *, with_latencies: bool = True) -> Point:
    reader = _Reader(question)
    cells = reader.read(reader.ends, with_latencies=with_latencies)
    [point] = reader.points(reader.ends, cells, ())
    return point


def series(question: Question, *, with_latencies: bool = True) -> tuple[Point, ...]:
    """Return all points, also those without usage. Raises `TooManyPoints`."""
    reader = _Reader(question)
    borders = reader.borders()
    return reader.points(borders, reader.read(borders, with_latencies=with_latencies), ())


def whole_and_series(question: Question) -> tuple[Figures, tuple[Point, ...]]:
    """Return the totals and the points from one reading."""
    reader = _Reader(question)
    borders = reader.borders()
    cells = reader.read(borders)
    whole = _Cell()
    for cell in cells.values():
        whole.join(cell)
    return whole.figures(), reader.points(borders, cells, ())


def groups(
    question: Question,
    by: Sequence[Dimension],
    *,
    max_groups: int = 10,
    largest: str = "num_requests",
    with_points: bool = False,
    num_drawn: int | None = None,
) -> Groups:
    """Return the groups with the most of `largest`, one of `rollups.SUMS` or "num_tokens". With
    `num_drawn` only so many groups have points, which have no latencies. Raises `TooManyPoints` if
    points are requested, and KeyError for an unknown `largest`."""
    reader = _Reader(question)
    sizes = {
        values: cell.size(largest)
        for (values, _), cell in reader.read(reader.ends, by, with_latencies=False).items()
    }
    ranking = sorted(sizes, key=lambda values: (-sizes[values], repr(values)))
    best = ranking[:max_groups]
    # Histograms are most of the data, and only the largest groups need them.
    only = _groups_condition(by, best)
    cells = reader.read(reader.ends, by, only)
    drawn = best[:num_drawn]
    borders = reader.borders() if with_points else ()
    of_drawn = only if num_drawn is None else _groups_condition(by, drawn)
    points = reader.read(borders, by, of_drawn, with_latencies=num_drawn is None)
    names = [_names_of(each, {values[at] for values in best}) for at, each in enumerate(by)]
    found = tuple(
        Group(
            tuple(map(Dimension.to_public, by, values)),
            tuple(known.get(value, "") for known, value in zip(names, values, strict=True)),
            cells[values, 0].figures(),
            reader.points(borders, points, values) if at < len(drawn) else (),
        )
        for at, values in enumerate(best)
    )
    since, until = map(moment_of, reader.ends)
    return Groups(since, until, len(ranking), found)


def _groups_condition(by: Sequence[Dimension], groups: Sequence[tuple[Key, ...]]) -> Q:
    """Return a condition that holds for all groups, and perhaps for other combinations."""
    if not groups:
        return NOTHING
    columns = zip(by, zip(*groups, strict=True), strict=True)
    return Q(*(among(dimension, frozenset(values)) for dimension, values in columns))


def _names_of(dimension: Dimension, values: set[Key]) -> dict[Key, str]:
    if dimension.name_column is None:
        return {value: str(dimension.to_public(value) or "") for value in values}
    column = dimension.column
    slices = UsageSlice.objects.filter(
        dimensions=RollupDimensions.KEY, **{f"{column}__in": values - {None}}
    )
    latest = slices.values(column).annotate(latest=Max("id")).values("latest")
    pairs = UsageSlice.objects.filter(id__in=latest).values_list(column, dimension.name_column)
    return dict(pairs)


_FRACTIONS: Final = ("weighted_tokens", "cost")


class _Joined(Aggregate):
    """Concatenated histograms: one histogram with all counts."""

    function = "STRING_AGG"
    template = "%(function)s(%(expressions)s, ''::bytea)"
    output_field = BinaryField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """SQLite concatenates bytes as text, with the same result."""
        return self.as_sql(
            compiler,
            connection,
            function="GROUP_CONCAT",
            template="CAST(%(function)s(%(expressions)s, '') AS BLOB)",
            **context,
        )


@dataclass(slots=True)
class _Cell:
    """The sums of one group in one point."""

    sums: list[float] = field(default_factory=lambda: [0] * len(SUMS))
    added: list[bytes] = field(default_factory=list)  # histograms
    taken: list[bytes] = field(default_factory=list)

    def add(self, sums: Sequence[float], histograms: bytes | None, sign: int) -> None:
        self.sums = [mine + sign * more for mine, more in zip(self.sums, sums, strict=True)]
        if histograms:
            (self.added if sign > 0 else self.taken).append(histograms)

    def join(self, other: "_Cell") -> None:
        self.sums = [mine + more for mine, more in zip(self.sums, other.sums, strict=True)]
        self.added += other.added
        self.taken += other.taken

    def size(self, column: str) -> float:
        sums = dict(zip(SUMS, self.sums, strict=True))
        if column == "num_tokens":
            return sums["num_prompt_tokens"] + sums["num_output_tokens"]
        return sums[column]

    def figures(self) -> Figures:
        counts = histogram.counts_of(self.added)
        if self.taken:
            counts = counts - histogram.counts_of(self.taken)
        numbers: dict[str, Any] = dict(zip(SUMS, self.sums, strict=True))
        # These are multiples of a thousandth; smaller digits are rounding errors.
        for column in _FRACTIONS:
            numbers[column] = max(0.0, round(numbers[column], 3))
        for latency, column in LATENCIES.items():
            numbers[column] = histogram.percentiles(counts, latency)
        return Figures(**numbers)


# By the values of a group, and the number of a point.
_Cells = defaultdict[tuple[tuple[Key, ...], int], _Cell]


class _Reader:
    def __init__(self, question: Question) -> None:
        self._question = question
        self._restriction = restriction(question.filters, question.visible)
        self._columns = columns_of(question.filters, question.visible)
        kept_since = retention.all_kept_since()
        self._kept = Kept(seconds_of(kept_since[MinuteRollup]), seconds_of(kept_since[HourRollup]))
        self.ends = self._kept.widen(question.since, question.until)

    def borders(self) -> Sequence[int]:
        question = self._question
        return periods.borders(
            question.since, question.until, question.point, question.zone, self._kept
        )

    def read(
        self,
        borders: Sequence[int],
        by: Sequence[Dimension] = (),
        only: Q = ANY,
        *,
        with_latencies: bool = True,
    ) -> _Cells:
        """Return cells by the values of `by` and the index of the point."""
        cells: _Cells = defaultdict(_Cell)
        columns = [dimension.column for dimension in by]
        if Dimension.END_USER.column in self._columns.union(columns):
            for row in _of_records(borders, columns, self._restriction & only):
                *values, point = row[: len(by) + 1]
                sums = [each or 0 for each in row[len(by) + 1 :]]
                cells[tuple(values), point].add(sums, None, 1)
            return cells
        for reading in periods.readings(borders):
            dimensions = coarsest(ROLLUP_DIMENSIONS[reading.unit_s], self._columns.union(columns))
            slices = UsageSlice.objects.filter(self._restriction, only, dimensions=dimensions)
            for row in _rows(reading, slices, columns, with_latencies):
                *values, bin_, joined = row[: len(by) + 2]
                for point, sign in reading.targets(bin_):
                    cells[tuple(values), point].add(row[len(by) + 2 :], joined, sign)
        return cells

    def points(
        self, borders: Sequence[int], cells: _Cells, values: tuple[Key, ...]
    ) -> tuple[Point, ...]:
        return tuple(
            Point(since, until, cells[values, at].figures())
            for at, (since, until) in enumerate(pairwise(map(moment_of, borders)))
        )


def _rows(
    reading: Reading,
    slices: QuerySet[UsageSlice],
    columns: Sequence[str],
    with_latencies: bool,  # noqa: FBT001
) -> QuerySet[Any, tuple[Any, ...]]:
    """Return rows of column values, the number of the bin, histograms, then the sums."""
    grouped = [*(f"slice__{column}" for column in columns), "bin"]
    sums = {f"sum_{column}": _sum(column) for column in SUMS}
    joined = _Joined("histograms") if with_latencies else Value(None, BinaryField())
    # Both databases divide integers.
    bin_ = (F("start_s") - reading.start_s) / reading.bin_s
    rows: QuerySet[Any, tuple[Any, ...]] = (
        LEVELS[reading.unit_s]
        ._default_manager.filter(_times(reading), slice__in=slices)
        .annotate(bin=bin_)
        .values(*grouped)
        .annotate(**sums, joined=joined)
        .values_list(*grouped, "joined", *sums)
        .order_by()
    )
    return rows


def _of_records(
    borders: Sequence[int], columns: Sequence[str], condition: Q
) -> QuerySet[Any, tuple[Any, ...]]:
    """Return rows of column values, the index of the point, then the sums, from usage records:
    roll-ups have no end users, since a client can send any number of them."""
    moments = [*map(moment_of, borders)]
    if not moments:
        return UsageRecord.objects.none().values_list()
    ends = [When(created_at__lt=end, then=Value(at)) for at, end in enumerate(moments[1:])]
    sums = {f"sum_{column}": counted for column, counted in _COUNTED.items()}
    rows: QuerySet[Any, tuple[Any, ...]] = (
        UsageRecord.objects.filter(created_at__gte=moments[0], created_at__lt=moments[-1])
        .annotate(status_class=F("http_status") / 100, point=Case(*ends))
        .filter(condition)
        .values(*columns, "point")
        .annotate(**sums)
        .values_list(*columns, "point", *sums)
        .order_by()
    )
    return rows


def _times(reading: Reading) -> Q:
    """Return the condition on start times. The database looks up a list of times in an index; for
    several ranges it would read everything between the first and the last."""
    if len(reading.parts) == 1:
        [part] = reading.parts
        return Q(start_s__gte=part.start, start_s__lt=part.stop)
    return Q(start_s__in=[*chain.from_iterable(reading.parts)])


def _sum(column: str) -> Cast | Sum:
    """Return the sum of a column. PostgreSQL sums integers to decimals, which are slow."""
    return Sum(column) if column in _FRACTIONS else Cast(Sum(column), BigIntegerField())


_IS_ERROR: Final = Q(outcome__in=[each for each in Outcome if each.is_error])
_IS_REJECTED: Final = Q(outcome=Outcome.REJECTED)
_IS_LIMITED: Final = Q(http_status=HTTPStatus.TOO_MANY_REQUESTS.value)

# The sums of roll-ups, counted in usage records.
_COUNTED: Final[dict[str, Aggregate | Cast]] = {
    "num_requests": Count("id"),
    "num_errors": Count("id", filter=_IS_ERROR),
    "num_taken": Count("id", filter=Q(num_prompt_tokens__gt=0)),
    "num_limited": Count("id", filter=_IS_REJECTED & _IS_LIMITED),
    "num_client_errors": Count("id", filter=_IS_REJECTED & ~_IS_LIMITED),
    "num_server_errors": Count("id", filter=_IS_ERROR & ~_IS_REJECTED),
    "num_cut_short": Count("id", filter=Q(finish_reason=QUOTA_EXCEEDED)),
    **{column: _sum(column) for column in OF_ROWS},
}
