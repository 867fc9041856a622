"""Reports of usage: totals, series over time and the largest groups, with percentiles.

Reports read roll-ups: the dimensions with the fewest rows that have the needed columns, and
for each period the coarsest unit with its borders (`periods`). A period is widened to whole
minutes, or to whole hours or days where shorter units have been deleted; the results contain
the actual borders. Reports about end users read usage records, as long as these are kept, and
have no percentiles.

Every function takes the usage that the reader may see, from `access/access`.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
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
from vinery_accounts.usage import histogram, periods, retention, spans
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
    OF_ROWS,
    ROLLUP_DIMENSIONS,
    SUMS,
    TABLES,
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


def whole_and_series(
    question: Question, *, with_latencies: bool = True
) -> tuple[Figures, tuple[Point, ...]]:
    """Return the totals, and the points with or without latencies, from one reading."""
    reader = _Reader(question)
    borders = reader.borders()
    cells = reader.read(borders)
    whole = _Cell()
    for cell in cells.values():
        whole.join(cell)
        if not with_latencies:
            cell.added, cell.taken = [], []
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
    sizes = reader.sizes(by, largest)
    ranking = sorted(sizes, key=lambda values: (-sizes[values], repr(values)))
    best = ranking[:max_groups]
    # Histograms are most of the data, and only the largest groups need them.
    cells = reader.read(reader.ends, by, best)
    drawn = best[:num_drawn]
    borders = reader.borders() if with_points else ()
    points = reader.read(borders, by, drawn, with_latencies=num_drawn is None)
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


# A statement lists at most so many slices; SQLite takes 32,766 parameters.
_MAX_IDS: Final = 5000
# The columns of each size by which groups are ranked.
_SIZES: Final[dict[str, tuple[str, ...]]] = {
    **{column: (column,) for column in SUMS},
    "num_tokens": ("num_prompt_tokens", "num_output_tokens"),
}
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

    def figures(self) -> Figures:
        numbers: dict[str, Any] = dict(zip(SUMS, self.sums, strict=True))
        # These are multiples of a thousandth; smaller digits are rounding errors.
        for column in _FRACTIONS:
            numbers[column] = max(0.0, round(numbers[column], 3))
        if not self.added:
            return Figures(**numbers)
        counts = histogram.counts_of(self.added)
        if self.taken:
            counts = counts - histogram.counts_of(self.taken)
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
        self._parts: dict[Reading, list[Reading]] = {}
        self._known: dict[RollupDimensions, dict[int, tuple[Key, ...]]] = {}

    def borders(self) -> Sequence[int]:
        question = self._question
        return periods.borders(
            question.since, question.until, question.point, question.zone, self._kept
        )

    def sizes(self, by: Sequence[Dimension], largest: str) -> dict[tuple[Key, ...], float]:
        """Return the size of each group, by the values of `by`."""
        sums = _SIZES[largest]
        sizes: defaultdict[tuple[Key, ...], float] = defaultdict(float)
        if self._is_of_records(by):
            places = [SUMS.index(column) for column in sums]
            for (values, _), cell in self.read(self.ends, by).items():
                sizes[values] += sum(cell.sums[at] for at in places)
        else:
            for reading, dimensions in self._readings(self.ends, by):
                values_of, slices = self._values(dimensions, by), self._slices(dimensions)
                # Grouped by slice, which needs no sorting.
                for slice_id, _, _, *added in _rows(reading, slices, ["slice"], sums=sums):
                    sizes[values_of[slice_id]] += sum(added)
        return sizes

    def read(
        self,
        borders: Sequence[int],
        by: Sequence[Dimension] = (),
        groups: Sequence[tuple[Key, ...]] | None = None,
        *,
        with_latencies: bool = True,
    ) -> _Cells:
        """Return cells by the values of `by` and the index of the point: of all groups, or of
        `groups` and perhaps others."""
        cells: _Cells = defaultdict(_Cell)
        only = ANY if groups is None else _groups_condition(by, groups)
        if self._is_of_records(by):
            columns = [dimension.column for dimension in by]
            for row in _of_records(borders, columns, self._restriction & only):
                *found, point = row[: len(by) + 1]
                sums = [each or 0 for each in row[len(by) + 1 :]]
                cells[tuple(found), point].add(sums, None, 1)
            return cells
        for reading, dimensions in self._readings(borders, by):
            slices: Collection[int] | QuerySet[UsageSlice] = self._slices(dimensions).filter(only)
            columns, values_of = [f"slice__{dimension.column}" for dimension in by], None
            if groups is not None:
                known, wanted = self._values(dimensions, by), set(groups)
                ids = [each for each, values in known.items() if values in wanted]
                slices = ids if len(ids) <= _MAX_IDS else slices
                if reading.has_one_bin:
                    columns, values_of = ["slice"], known
            num = len(columns)
            for row in _rows(reading, slices, columns, with_latencies=with_latencies):
                group = row[:num] if values_of is None else values_of[row[0]]
                for point, sign in reading.targets(row[num]):
                    cells[group, point].add(row[num + 2 :], row[num + 1], sign)
        return cells

    def _is_of_records(self, by: Sequence[Dimension]) -> bool:
        return Dimension.END_USER in by or Dimension.END_USER.column in self._columns

    def _readings(
        self, borders: Sequence[int], by: Sequence[Dimension]
    ) -> Iterator[tuple[Reading, RollupDimensions]]:
        columns = self._columns.union(dimension.column for dimension in by)
        for whole in periods.readings(periods.through_today(borders, time.time())):
            if whole not in self._parts:
                self._parts[whole] = spans.in_spans(whole)
            for reading in self._parts[whole]:
                yield reading, coarsest(ROLLUP_DIMENSIONS[reading.unit_s], columns)

    def _slices(self, dimensions: RollupDimensions) -> QuerySet[UsageSlice]:
        return UsageSlice.objects.filter(self._restriction, dimensions=dimensions)

    def _values(
        self, dimensions: RollupDimensions, by: Sequence[Dimension]
    ) -> dict[int, tuple[Key, ...]]:
        """Return the values of `by` of each slice, by its id."""
        if dimensions not in self._known:
            columns = [dimension.column for dimension in by]
            rows = self._slices(dimensions).order_by().values_list("id", *columns)
            self._known[dimensions] = {row[0]: row[1:] for row in rows}
        return self._known[dimensions]

    def points(
        self, borders: Sequence[int], cells: _Cells, values: tuple[Key, ...]
    ) -> tuple[Point, ...]:
        return tuple(
            Point(since, until, cells[values, at].figures())
            for at, (since, until) in enumerate(pairwise(map(moment_of, borders)))
        )


def _rows(
    reading: Reading,
    slices: Collection[int] | QuerySet[UsageSlice],
    columns: Sequence[str],
    *,
    sums: Sequence[str] = SUMS,
    with_latencies: bool = False,
) -> QuerySet[Any, tuple[Any, ...]]:
    """Return rows of column values, the number of the bin, histograms, then the sums."""
    grouped = [*columns, "bin"]
    summed = {f"sum_{column}": _sum(column) for column in sums}
    joined = _Joined("histograms") if with_latencies else Value(None, BinaryField())
    # Both databases divide integers, and group by slice along an index if there is no bin.
    is_one = columns and reading.has_one_bin
    bin_ = Value(0) if is_one else (F("start_s") - reading.start_s) / reading.bin_s
    rows: QuerySet[Any, tuple[Any, ...]] = (
        TABLES[reading.unit_s]
        ._default_manager.filter(_times(reading), slice__in=slices)
        .annotate(bin=bin_)
        .values(*grouped)
        .annotate(**summed, joined=joined)
        .values_list(*grouped, "joined", *summed)
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
