"""Reports of usage: totals, series over time and the largest groups, with percentiles.

Reports read roll-ups: the dimensions with the fewest rows that have the needed columns, and
for each period the coarsest unit with its borders (`periods`). A period is widened to whole
minutes, or to whole hours or days where shorter units have been deleted; the results contain
the actual borders. Reports about end users read usage records, as long as these are kept, and
have no percentiles.

Every function takes the usage that the reader may see, from `access/access`."""

import operator
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from http import HTTPStatus
from itertools import chain, pairwise
from typing import Any, Final

from django.core.exceptions import EmptyResultSet
from django.db import connection, models
from django.db.models import Case, Count, F, Max, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Cast

from vinery_accounts.base.errors import QUOTA_EXCEEDED
from vinery_accounts.models import HourRollup, MinuteRollup, UsageRecord, UsageSlice
from vinery_accounts.usage import histogram, periods, rollups, upkeep
from vinery_accounts.usage.entries import Outcome, TokenCounts
from vinery_accounts.usage.filters import NOTHING, Conditions, Dimension, Key, among, restriction
from vinery_accounts.usage.histogram import Percentiles
from vinery_accounts.usage.periods import Granularity, Kept, Reading, moment_of, seconds_of
from vinery_accounts.usage.rollups import LATENCIES, SUMS, RollupDimensions, coarsest


@dataclass(frozen=True, kw_only=True)
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

    @cached_property
    def reader(self) -> "_Reader":
        return _Reader(self)


class Figures(TokenCounts, frozen=True, kw_only=True):
    """Aggregated usage. Latencies are None if not measured; `total_ms` is of whole answers."""

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


SIZES: Final[dict[str, tuple[str, ...]]] = {
    **{column: (column,) for column in SUMS},
    "num_tokens": ("num_prompt_tokens", "num_output_tokens"),
}
"""The columns of each size by which groups are ranked."""
_FRACTIONS: Final = ("weighted_tokens", "cost")


def totals(question: Question, *, with_latencies: bool = True) -> Point:
    reader = question.reader
    cells = reader.read(reader.ends, with_latencies=with_latencies)
    [point] = reader.points(reader.ends, cells, ())
    return point


def series(
    question: Question, *, sums: Sequence[str] = SUMS, with_latencies: bool = True
) -> tuple[Point, ...]:
    """Return all points, also those without usage: of these sums. Raises `TooManyPoints`."""
    reader = question.reader
    borders = reader.borders()
    cells = reader.read(borders, sums=sums, with_latencies=with_latencies)
    return reader.points(borders, cells, (), sums)


def whole_and_series(question: Question) -> tuple[Figures, tuple[Point, ...]]:
    """Return the totals, and the points, from one reading."""
    reader = question.reader
    borders = reader.borders()
    cells = reader.read(borders)
    whole = _Cell()
    for cell in cells.values():
        whole.join(cell)
    return _figures([whole])[0], reader.points(borders, cells, ())


def groups(
    question: Question,
    by: Sequence[Dimension],
    *,
    max_groups: int = 10,
    largest: str = "num_requests",
    with_points: bool = False,
    num_drawn: int | None = None,
    drawn: Sequence[str] = SUMS,
) -> Groups:
    """Return the groups with the most of `largest`, a key of `SIZES`. With `num_drawn` only so many
    groups have points, of the sums `drawn` and without latencies. Raises `TooManyPoints` if points
    are requested, and KeyError for an unknown `largest`."""
    reader, of_size = question.reader, SIZES[largest]
    # Histograms are most of the data: of many groups only the largest need them.
    is_one_reading = reader.has_few(by, max_groups)
    sums = SUMS if is_one_reading else of_size
    cells = reader.read(reader.ends, by, sums=sums, with_latencies=is_one_reading)
    places = [sums.index(column) for column in of_size]
    sizes = {values: sum(cell.sums[at] for at in places) for (values, _), cell in cells.items()}
    ranking = sorted(sizes, key=lambda values: (-sizes[values], repr(values)))
    best = ranking[:max_groups]
    if not is_one_reading:
        cells = reader.read(reader.ends, by, best)
    with_points_of = best[:num_drawn] if with_points else []
    borders = reader.borders() if with_points else ()
    points = reader.read(borders, by, with_points_of, sums=drawn, with_latencies=num_drawn is None)
    names = [_names_of(each, {values[at] for values in best}) for at, each in enumerate(by)]
    summed = _figures([cells[values, 0] for values in best])
    found = tuple(
        Group(
            tuple(map(Dimension.to_public, by, values)),
            tuple(known.get(value, "") for known, value in zip(names, values, strict=True)),
            figures,
            reader.points(borders, points, values, drawn) if at < len(with_points_of) else (),
        )
        for at, (values, figures) in enumerate(zip(best, summed, strict=True))
    )
    since, until = map(moment_of, reader.ends)
    return Groups(since, until, len(ranking), found)


def exact_sums(
    question: Question, by: Sequence[Dimension], sums: Sequence[str]
) -> dict[tuple[Key, ...], list[float]]:
    """Return the sums of all groups from exactly `since` on, as long as records are kept: where
    roll-ups of minutes have been deleted, usage records have the first part of an hour."""
    reader, since_s = question.reader, seconds_of(question.since)
    first, last = reader.ends
    cells: _Cells = defaultdict(_Cell)
    if first < since_s and reader.has_records:
        first = reader.next_border(since_s)
        cells = reader.of_records((since_s, first), by, Q(), sums)
    for at, cell in reader.read((first, last), by, sums=sums, with_latencies=False).items():
        cells[at].add(cell.sums, None, 1)
    return {values: cell.sums for (values, _), cell in cells.items()}


def _among(by: Sequence[Dimension], groups: Sequence[tuple[Key, ...]]) -> Q:
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


@dataclass(slots=True)
class _Cell:
    """The sums of one group in one point."""

    sums: list[float] = field(default_factory=list)  # empty: all are 0
    added: list[bytes] = field(default_factory=list)  # histograms
    taken: list[bytes] = field(default_factory=list)

    def add(self, sums: Sequence[float], histograms: bytes | None, sign: int) -> None:
        sums = sums if sign > 0 else [-each for each in sums]
        self.sums = list(map(operator.add, self.sums, sums)) if self.sums else list(sums)
        if histograms:
            (self.added if sign > 0 else self.taken).append(histograms)

    def join(self, other: "_Cell") -> None:
        self.add(other.sums or [0] * len(SUMS), None, 1)
        self.added += other.added
        self.taken += other.taken

    def figures(self, columns: Sequence[str], found: Sequence[Percentiles | None]) -> Figures:
        numbers: dict[str, Any] = dict(zip(columns, self.sums, strict=False))
        # These are multiples of a thousandth; smaller digits are rounding errors.
        for column in _FRACTIONS:
            if column in numbers:
                numbers[column] = max(0.0, round(numbers[column], 3))
        numbers |= dict(zip(LATENCIES.values(), found, strict=False))
        return Figures(**numbers)


def _figures(cells: Sequence[_Cell], columns: Sequence[str] = SUMS) -> list[Figures]:
    measured = [(b"".join(each.added), b"".join(each.taken)) for each in cells if each.added]
    found = iter(histogram.percentiles(measured) if measured else ())
    return [
        each.figures(columns, next(found) if each.added else ()) if each.sums else _NOTHING
        for each in cells
    ]


_NOTHING: Final = Figures()
_EMPTY: Final = _Cell()
# The values of a group by the ids of its slices.
_Slices = dict[int, tuple[Key, ...]]
# By the values of a group, and the number of a point.
_Cells = defaultdict[tuple[tuple[Key, ...], int], _Cell]


class _Reader:
    def __init__(self, question: Question) -> None:
        self._question = question
        self._restriction = restriction(question.filters, question.visible)
        self._columns = {each.column for each in (*question.filters, *(question.visible or ()))}
        kept_since = upkeep.all_kept_since()
        self._kept = Kept(seconds_of(kept_since[MinuteRollup]), seconds_of(kept_since[HourRollup]))
        self.ends = self._kept.widen(question.since, question.until)
        self.has_records = kept_since[UsageRecord] <= question.since
        self._parts: dict[Reading, list[Reading]] = {}
        self._known: dict[tuple[RollupDimensions, tuple[Dimension, ...]], _Slices] = {}

    def borders(self) -> Sequence[int]:
        asked = self._question
        return periods.borders(asked.since, asked.until, asked.point, asked.zone, self._kept)

    def next_border(self, at_s: int) -> int:
        return periods.round_up(at_s, self._kept.unit_at(at_s))

    def has_few(self, by: Sequence[Dimension], most: int) -> bool:
        """Whether there are perhaps at most so many groups, or all are read at once."""
        if self._is_of_records(by):
            return True
        columns = self._columns.union(dimension.column for dimension in by)
        return len(set(self._slices(coarsest(RollupDimensions, columns), by).values())) <= most

    def read(
        self,
        borders: Sequence[int],
        by: Sequence[Dimension] = (),
        groups: Sequence[tuple[Key, ...]] | None = None,
        *,
        sums: Sequence[str] = SUMS,
        with_latencies: bool = True,
    ) -> _Cells:
        """Return cells by the values of `by` and the index of the point: of all groups, or
        of `groups` and perhaps others."""
        only, num = Q() if groups is None else _among(by, groups), len(by)
        if self._is_of_records(by):
            return self.of_records(borders, by, only, sums)
        cells: _Cells = defaultdict(_Cell)
        columns = tuple(dimension.column for dimension in by)
        for reading, dimensions in self._readings(borders, by):
            rows = _Rows(reading, sums, with_latencies)
            if by and reading.unit_s == rollups.SPAN_S:
                known, wanted = self._slices(dimensions, by), set(groups or ())
                ids = [each for each in known if groups is None or known[each] in wanted]
                found = ((known[row[0]], *row[1:]) for row in rows.of_slices(ids))
            else:
                slices = self._query(dimensions).filter(only).values("id", *columns)
                found = ((row[:num], *row[num:]) for row in rows.joined(slices, columns))
            for group, bin_, histograms, *added in found:
                for point, sign in reading.targets(bin_):
                    cells[group, point].add(added, histograms, sign)
        return cells

    def of_records(
        self, borders: Sequence[int], by: Sequence[Dimension], only: Q, sums: Sequence[str]
    ) -> _Cells:
        cells: _Cells = defaultdict(_Cell)
        num = len(by)
        for row in _of_records(borders, by, self._restriction & only, sums):
            cells[row[:num], row[num]].add([each or 0 for each in row[num + 1 :]], None, 1)
        return cells

    def _is_of_records(self, by: Sequence[Dimension]) -> bool:
        return Dimension.END_USER in by or Dimension.END_USER.column in self._columns

    def _readings(
        self, borders: Sequence[int], by: Sequence[Dimension]
    ) -> Iterator[tuple[Reading, RollupDimensions]]:
        columns = self._columns.union(dimension.column for dimension in by)
        for whole in periods.readings(periods.through_today(borders, time.time())):
            if whole not in self._parts:
                self._parts[whole] = upkeep.in_spans(whole)
            for reading in self._parts[whole]:
                yield reading, coarsest(rollups.ROLLUP_DIMENSIONS[reading.unit_s], columns)

    def _query(self, dimensions: RollupDimensions) -> QuerySet[UsageSlice]:
        return UsageSlice.objects.filter(self._restriction, dimensions=dimensions).order_by()

    def _slices(self, dimensions: RollupDimensions, by: Sequence[Dimension]) -> _Slices:
        at = dimensions, tuple(by)
        if at not in self._known:
            columns = [dimension.column for dimension in by]
            rows = self._query(dimensions).values_list("id", *columns)
            self._known[at] = {row[0]: row[1:] for row in rows}
        return self._known[at]

    def points(
        self,
        borders: Sequence[int],
        cells: _Cells,
        values: tuple[Key, ...],
        sums: Sequence[str] = SUMS,
    ) -> tuple[Point, ...]:
        # Most points of a long period may be empty.
        of_points = [cells.get((values, at), _EMPTY) for at in range(len(borders) - 1)]
        figures = _figures(of_points, sums)
        spans = pairwise(map(moment_of, borders))
        return tuple(Point(*span, each) for span, each in zip(spans, figures, strict=True))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the columns of a group, the number of the bin, histograms, then the sums. Django
    took a third of a page's time to write such SQL."""

    reading: Reading
    sums: Sequence[str]
    has_latencies: bool

    def of_slices(self, ids: list[int]) -> list[tuple[Any, ...]]:
        """Return a row for each of these slices, grouped along an index."""
        is_sqlite = connection.vendor == "sqlite"
        among = "IN (SELECT value FROM json_each(%s))" if is_sqlite else "= ANY(%s)"
        params = [str(ids) if is_sqlite else ids]
        return self._select(["slice_id"], "", f"AND slice_id {among}", params)

    def joined(self, slices: QuerySet[Any, Any], columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return a row for each of the values that these columns of the slices have."""
        try:
            sql, params = slices.query.sql_with_params()
        except EmptyResultSet:
            return []
        if not columns:
            return self._select((), "", f"AND slice_id IN ({sql})", params)
        # Most slices of a day or two are asked for: SQLite would look for each slice in the index.
        is_short = self.reading.unit_s == rollups.DAY_S and self.reading.num_starts <= 2
        join = "CROSS JOIN" if is_short and connection.vendor == "sqlite" else "JOIN"
        return self._select(columns, f"{join} ({sql}) s ON s.id = slice_id", "", params)

    def _select(
        self, columns: Sequence[str], join: str, among: str, params: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        reading = self.reading
        # SQLite concatenates bytes as text, with the same result.
        joined = (
            "STRING_AGG(histograms, ''::bytea)"
            if connection.vendor == "postgresql"
            else "CAST(GROUP_CONCAT(histograms, '') AS BLOB)"
        )
        # PostgreSQL sums integers to decimals, which are slow. Both divide integers.
        sums = [f"SUM({e})" if e in _FRACTIONS else f"CAST(SUM({e}) AS bigint)" for e in self.sums]
        is_one = columns and reading.has_one_bin
        bin_ = "0" if is_one else f"(start_s - {reading.start_s}) / {reading.bin_s}"
        found = [*columns, bin_, joined if self.has_latencies else "NULL", *sums]
        table = rollups.TABLES[reading.unit_s]._meta.db_table
        sql = (
            f"SELECT {', '.join(found)} FROM {table} {join} "
            f"WHERE {_times(reading)} {among} "
            f"GROUP BY {', '.join(columns if is_one else (*columns, bin_))}"
        )
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall())


def _of_records(
    borders: Sequence[int], by: Sequence[Dimension], condition: Q, columns: Sequence[str]
) -> QuerySet[Any, tuple[Any, ...]]:
    """Return rows of the values of `by`, the index of the point, then the sums, from usage records:
    roll-ups have no end users, since a client can send any number of them."""
    moments = [*map(moment_of, borders)]
    if not moments:
        return UsageRecord.objects.none().values_list()
    ends = [When(created_at__lt=end, then=Value(at)) for at, end in enumerate(moments[1:])]
    grouped = [*(dimension.column for dimension in by), "point"]
    sums = {f"sum_{column}": _COUNTED[column] for column in columns}
    rows: QuerySet[Any, tuple[Any, ...]] = (
        UsageRecord.objects.filter(created_at__gte=moments[0], created_at__lt=moments[-1])
        .annotate(status_class=F("http_status") / 100, point=Case(*ends))
        .filter(condition)
        .values(*grouped)
        .annotate(**sums)
        .values_list(*grouped, *sums)
        .order_by()
    )
    return rows


def _times(reading: Reading) -> str:
    """Return the condition on start times. The database looks up a list of times in an index; for
    several ranges it would read everything between the first and the last."""
    if len(reading.parts) == 1:
        [part] = reading.parts
        return f"start_s >= {part.start} AND start_s < {part.stop}"
    return f"start_s IN ({', '.join(map(str, chain.from_iterable(reading.parts)))})"


_IS_ERROR: Final = Q(outcome__in=[each for each in Outcome if each.is_error])
_IS_REJECTED: Final = Q(outcome=Outcome.REJECTED)
_IS_LIMITED: Final = Q(http_status=HTTPStatus.TOO_MANY_REQUESTS.value)

# The sums of roll-ups, counted in usage records.
_COUNTED: Final[dict[str, models.Aggregate | Cast]] = {
    "num_requests": Count("id"),
    "num_errors": Count("id", filter=_IS_ERROR),
    "num_taken": Count("id", filter=Q(num_prompt_tokens__gt=0)),
    "num_limited": Count("id", filter=_IS_REJECTED & _IS_LIMITED),
    "num_client_errors": Count("id", filter=_IS_REJECTED & ~_IS_LIMITED),
    "num_server_errors": Count("id", filter=_IS_ERROR & ~_IS_REJECTED),
    "num_cut_short": Count("id", filter=Q(finish_reason=QUOTA_EXCEEDED)),
    **{
        column: Sum(column) if column in _FRACTIONS else Cast(Sum(column), models.BigIntegerField())
        for column in rollups.OF_ROWS
    },
}
