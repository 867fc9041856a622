"""Aggregates usage by minute, hour and day, in the transaction that stores the records.

So the roll-ups equal the records at any moment, also after late records and kills. A job that
follows the records would have to handle records that commit out of order. In return, writers
store batches one after the other (`take_usage_lock`); with many writers batches get larger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from http.client import TOO_MANY_REQUESTS
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec
from django.db import connection

from vinery_accounts import models
from vinery_accounts.base.errors import QUOTA_EXCEEDED
from vinery_accounts.models.usage import Rollup, UsageRecord, UsageSlice
from vinery_accounts.usage import histogram
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.filters import NAME_COLUMNS
from vinery_accounts.usage.histogram import Latency

T = TypeVar("T")

# The combinations of columns that usage is aggregated by. Each request is aggregated once for
# each, and a report reads the one with the fewest rows that has its columns. Almost all contain the
# organisation, because members of an organisation see nothing else.


class RollupDimensions(StrEnum):
    """A set of columns that a roll-up keeps apart, in order of the number of rows."""

    PROJECT = "project"
    OUTCOME = "outcome"
    ENDPOINT = "endpoint"
    MODEL = "model"
    WHAT = "what"
    KEY = "key"
    # Of spans alone.
    PROJECT_OUTCOME = "project_outcome"
    PROJECT_ENDPOINT = "project_endpoint"
    PROJECT_MODEL = "project_model"
    ORGANIZATION = "organization"
    USER_MODEL = "user_model"
    USER_ENDPOINT = "user_endpoint"
    USER_OUTCOME = "user_outcome"
    KEY_MODEL = "key_model"
    KEY_ENDPOINT = "key_endpoint"
    KEY_OUTCOME = "key_outcome"
    ALL = "all"


# The columns of a slice, without the names that belong to ids.
_COLUMNS: dict[RollupDimensions, frozenset[str]] = {
    RollupDimensions.PROJECT: frozenset({"project_id", "organization_id"}),
    RollupDimensions.OUTCOME: frozenset({"organization_id", "outcome", "status_class"}),
    RollupDimensions.ENDPOINT: frozenset({"organization_id", "endpoint"}),
    RollupDimensions.MODEL: frozenset({"organization_id", "model"}),
    RollupDimensions.WHAT: frozenset({"model", "endpoint", "outcome", "status_class"}),
    RollupDimensions.KEY: frozenset({"key_id", "user_id", "project_id", "organization_id"}),
}
_COLUMNS |= {
    RollupDimensions(f"{owner}_{what}"): columns | _COLUMNS[what]
    for owner, columns in (
        ("project", _COLUMNS[RollupDimensions.PROJECT]),
        ("user", frozenset({"user_id", "organization_id"})),
        ("key", _COLUMNS[RollupDimensions.KEY]),
    )
    for what in (RollupDimensions.OUTCOME, RollupDimensions.ENDPOINT, RollupDimensions.MODEL)
}
_COLUMNS[RollupDimensions.ORGANIZATION] = _COLUMNS[RollupDimensions.WHAT] | {"organization_id"}
_COLUMNS[RollupDimensions.ALL] = frozenset().union(*_COLUMNS.values())
# The columns of ids, by the columns with their names.
_ID_COLUMNS = {name: id_ for id_, name in NAME_COLUMNS.items()}


class Slice(NamedTuple):
    """The values of a `UsageSlice`. The digest depends on the order of the fields: keep it."""

    dimensions: str
    key_id: int | None = None
    key_name: str = ""
    user_id: int | None = None
    username: str = ""
    project_id: int | None = None
    project_name: str = ""
    organization_id: int | None = None
    organization_name: str = ""
    model: str = ""
    endpoint: str = ""
    outcome: str = ""
    status_class: int | None = None

    @property
    def digest(self) -> str:
        """32 hex digits, unique for these values. A unique index ignores rows with nulls."""
        return blake2b(msgspec.json.encode(tuple(self)), digest_size=16).hexdigest()

    def record(self) -> UsageSlice:
        return UsageSlice(digest=self.digest, **self._asdict())

    def at(self, dimensions: RollupDimensions) -> Slice:
        """Return the slice with only these dimensions, which contains this one."""
        return Slice._make((str(dimensions), *_KEPT[dimensions](self + _EMPTY)))


_EMPTY = tuple(Slice._field_defaults.values())
# Functions that take a slice followed by empty values, and return one of both for each column.
_KEPT = {
    dimensions: itemgetter(
        *(
            at if {column, _ID_COLUMNS.get(column)} & columns else at + len(_EMPTY)
            for at, column in enumerate(Slice._field_defaults, start=1)
        )
    )
    for dimensions, columns in _COLUMNS.items()
}


def coarsest(choices: Iterable[RollupDimensions], columns: Collection[str]) -> RollupDimensions:
    """Return the choice with the fewest rows among those with all of these columns. Raises
    StopIteration without such a choice; `RollupDimensions.ALL` has all columns."""
    return next(dimensions for dimensions in choices if _COLUMNS[dimensions].issuperset(columns))


def slice_of(row: UsageRecord) -> Slice:
    """Return the slice of a usage record with all dimensions. Clients can request any number of
    models that do not exist, whose names would fill the tables: the slice has "" instead."""
    is_unknown = row.outcome == Outcome.REJECTED and row.http_status == 404
    model = "" if is_unknown else row.model
    about = (model, row.endpoint, str(row.outcome), row.http_status and row.http_status // 100)
    return Slice._make((str(RollupDimensions.ALL), *_owners(row), *about))


_owners = attrgetter(*Slice._fields[1:9])

MINUTE_S, HOUR_S, DAY_S, SPAN_S = 60, 3600, 86_400, 3 * 86_400
LEVELS: dict[int, type[Rollup]] = {
    MINUTE_S: models.MinuteRollup,
    HOUR_S: models.HourRollup,
    DAY_S: models.DayRollup,
}
_USUAL = tuple(
    dimensions
    for dimensions in RollupDimensions
    if "_" not in dimensions and dimensions is not RollupDimensions.ORGANIZATION
)
# Those that stored records change, and that of `spans`.
TABLES: dict[int, type[Rollup]] = {**LEVELS, SPAN_S: models.SpanRollup}
# Few requests share a minute, so fewer dimensions would not save rows there.
ROLLUP_DIMENSIONS: dict[int, tuple[RollupDimensions, ...]] = {
    MINUTE_S: (RollupDimensions.ALL,),
    HOUR_S: _USUAL,
    DAY_S: _USUAL,
    SPAN_S: tuple(RollupDimensions),
}
# The summed columns of a roll-up, those that usage records have as well, and those of times.
SUMS = tuple(field.name for field in Rollup._meta.local_fields if field.default == 0)
OF_ROWS = SUMS[SUMS.index("num_prompt_tokens") :]
LATENCIES = {latency: f"{latency.name.lower()}_ms" for latency in Latency}
# The columns of usage records that `tallies_of` reads.
OF_RECORDS = (
    *(*Slice._fields[1:-1], "http_status", "created_at", "finish_reason"),
    *(*OF_ROWS, *LATENCIES.values()),
)
# The number of a PostgreSQL advisory lock; it spells "usage".
_LOCK = 0x7573616765
_MAX_ROWS = 500
# Concatenated histograms that are longer are compacted. One with all buckets has 4 KiB.
_LONG_TALLY_BYTES = 512
_LONG_ROW_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Tally:
    """The sums of the requests of one slice in one minute, hour or day."""

    sums: Sequence[float]  # in the order of `SUMS`
    histograms: bytes

    @classmethod
    def of_record(cls, row: UsageRecord) -> Tally:
        summed = (getattr(row, column) or 0 for column in OF_ROWS)
        outcome = Outcome(row.outcome)
        measured = {
            histogram.bucket_index_of(latency, duration_ms): 1
            for latency, column in LATENCIES.items()
            if (duration_ms := getattr(row, column)) is not None
            and (latency is not Latency.TOTAL or outcome is Outcome.OK)
        }
        causes = causes_of(outcome, row.http_status, row.finish_reason)
        counted = (True, outcome.is_error, row.num_prompt_tokens > 0, *causes)
        return cls([*map(int, counted), *summed], histogram.encode(measured))

    @classmethod
    def of(cls, tallies: Sequence[Tally]) -> Tally:
        """Return the sum of these. The sum of one tally is that tally itself."""
        if len(tallies) == 1:
            return tallies[0]
        sums = [sum(column) for column in zip(*(each.sums for each in tallies), strict=True)]
        joined = b"".join(each.histograms for each in tallies)
        return cls(sums, histogram.compact(joined) if len(joined) > _LONG_TALLY_BYTES else joined)


Unit = tuple[int, Slice]  # start in Unix seconds, and slice
Tallies = Mapping[Unit, Tally]


def causes_of(outcome: Outcome, http_status: int | None, finish_reason: str) -> tuple[bool, ...]:
    """Whether a limit refused the request, whether the client or the server caused an error, and
    whether a limit cut the answer short."""
    is_rejected, is_limited = outcome is Outcome.REJECTED, http_status == TOO_MANY_REQUESTS
    return (
        is_rejected and is_limited,
        is_rejected and not is_limited,
        outcome.is_error and not is_rejected,
        finish_reason == QUOTA_EXCEEDED,
    )


def take_usage_lock() -> None:
    """Let no other transaction store usage until this one ends: SQLite has one writer anyway."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def add_rows(rows: Iterable[UsageRecord]) -> None:
    """Add new records to all roll-ups. The transaction must have called `take_usage_lock`."""
    levels = tallies_of(rows)
    slice_ids = ids_of({each for tallies in levels.values() for _, each in tallies})
    for unit_s, tallies in levels.items():
        add_tallies(LEVELS[unit_s], tallies, slice_ids)


def tallies_of(rows: Iterable[UsageRecord]) -> dict[int, Tallies]:
    fine: Iterable[tuple[Unit, Tally]] = (
        ((int(row.created_at.timestamp()), slice_of(row)), Tally.of_record(row)) for row in rows
    )
    levels: dict[int, Tallies] = {}
    for unit_s in LEVELS:
        of_unit = together(((at_s // unit_s * unit_s, each), tally) for (at_s, each), tally in fine)
        fine = of_unit.items()
        levels[unit_s] = together(
            ((start_s, each.at(dimensions)), tally)
            for (start_s, each), tally in fine
            for dimensions in ROLLUP_DIMENSIONS[unit_s]
        )
    return levels


def ids_of(slices: Collection[Slice]) -> dict[Slice, int]:
    """Return the ids of slices, after inserting the new ones."""
    digests = {each.digest: each for each in slices}
    known = _known(digests)
    missing = [each.record() for digest, each in digests.items() if digest not in known]
    if missing:
        UsageSlice.objects.bulk_create(missing, ignore_conflicts=True)
        known = _known(digests)
    return {each: known[digest] for digest, each in digests.items()}


def add_tallies(model: type[Rollup], tallies: Tallies, slice_ids: Mapping[Slice, int]) -> None:
    rows: list[tuple[Any, ...]] = [
        (start_s, slice_ids[each], *tally.sums, tally.histograms)
        for (start_s, each), tally in tallies.items()
    ]
    long: list[int] = []
    with connection.cursor() as cursor:
        for some in _batches(rows):
            cursor.execute(_upsert(model, len(some)), list(chain.from_iterable(some)))
            long += [row_id for row_id, size in cursor.fetchall() if size > _LONG_ROW_BYTES]
    for some_ids in _batches(long):
        for row in model._default_manager.filter(pk__in=some_ids).only("histograms"):
            row.histograms = histogram.compact(bytes(row.histograms))
            row.save(update_fields=["histograms"])


def together(pairs: Iterable[tuple[Unit, Tally]]) -> Tallies:
    found: dict[Unit, list[Tally]] = defaultdict(list)
    for unit, tally in pairs:
        found[unit].append(tally)
    return {unit: Tally.of(tallies) for unit, tallies in found.items()}


def _known(digests: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in _batches(list(digests)):
        found.update(UsageSlice.objects.filter(digest__in=some).values_list("digest", "id"))
    return found


def _upsert(model: type[Rollup], num_rows: int) -> str:
    """Return SQL that inserts rows or adds to existing rows. Django's upsert only replaces."""
    table = model._meta.db_table
    joined = f"{table}.histograms || excluded.histograms"
    if connection.vendor == "sqlite":
        joined = f"CAST({joined} AS BLOB)"  # SQLite gives the concatenation the type text
    sums = ", ".join(f"{column} = {table}.{column} + excluded.{column}" for column in SUMS)
    marks = f"({', '.join(['%s'] * (len(SUMS) + 3))})"
    return (
        f"INSERT INTO {table} (start_s, slice_id, {', '.join(SUMS)}, histograms) "
        f"VALUES {', '.join([marks] * num_rows)} ON CONFLICT (start_s, slice_id) "
        f"DO UPDATE SET {sums}, histograms = {joined} RETURNING id, LENGTH(histograms)"
    )


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + _MAX_ROWS] for at in range(0, len(items), _MAX_ROWS))
