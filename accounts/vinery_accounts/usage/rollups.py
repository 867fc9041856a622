"""Aggregates usage by minute, hour and day, in the transaction that stores the records.

So the roll-ups equal the records at any moment, also after late records and kills. A job that
follows the records would have to handle records that commit out of order. In return, writers
store batches one after the other (`take_usage_lock`); with many writers batches get larger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import TOO_MANY_REQUESTS
from itertools import chain
from typing import Any, TypeVar

from django.db import connection

from vinery_accounts.base.errors import QUOTA_EXCEEDED
from vinery_accounts.models.rollups import DayRollup, HourRollup, MinuteRollup, Rollup, UsageSlice
from vinery_accounts.models.usage import UsageRecord
from vinery_accounts.usage import histogram
from vinery_accounts.usage.dimensions import ABOUT_RECORDS, RollupDimensions, Slice, slice_of
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.histogram import Latency

T = TypeVar("T")

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
LEVELS: dict[int, type[Rollup]] = {MINUTE_S: MinuteRollup, HOUR_S: HourRollup, DAY_S: DayRollup}
# Few requests share a minute, so fewer dimensions would not save rows there.
ROLLUP_DIMENSIONS: dict[int, tuple[RollupDimensions, ...]] = {
    MINUTE_S: (RollupDimensions.ALL,),
    HOUR_S: tuple(RollupDimensions),
    DAY_S: tuple(RollupDimensions),
}
SUMS = tuple(field.name for field in Rollup._meta.local_fields if field.default == 0)
"""The summed columns of a roll-up."""

OF_ROWS = SUMS[SUMS.index("num_prompt_tokens") :]
"""The summed columns that usage records have as well."""

LATENCIES = {latency: f"{latency.name.lower()}_ms" for latency in Latency}
"""The columns of usage records with measured times."""

OF_RECORDS = (*ABOUT_RECORDS, "created_at", "finish_reason", *OF_ROWS, *LATENCIES.values())
"""The columns of usage records that `tallies_of` reads."""

# The number of a PostgreSQL advisory lock; it spells "usage".
_LOCK = 0x7573616765
_ROWS_IN_A_STATEMENT = 500
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
        counted = (
            True,
            outcome.is_error,
            row.num_prompt_tokens > 0,
            *causes_of(outcome, row.http_status, row.finish_reason),
        )
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


def causes_of(
    outcome: Outcome, http_status: int | None, finish_reason: str
) -> tuple[bool, bool, bool, bool]:
    """Whether a limit refused the request, whether its client or the server is the cause of its
    error, and whether a limit cut its answer short."""
    is_rejected, is_limited = outcome is Outcome.REJECTED, http_status == TOO_MANY_REQUESTS
    return (
        is_rejected and is_limited,
        is_rejected and not is_limited,
        outcome.is_error and not is_rejected,
        finish_reason == QUOTA_EXCEEDED,
    )


def take_usage_lock() -> None:
    """Block other transactions from storing usage until this one ends.

    SQLite has a single writer anyway.
    """
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
        _compact(model, some_ids)


def together(pairs: Iterable[tuple[Unit, Tally]]) -> Tallies:
    found: dict[Unit, list[Tally]] = defaultdict(list)
    for unit, tally in pairs:
        found[unit].append(tally)
    return {unit: Tally.of(tallies) for unit, tallies in found.items()}


def _known(digests: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in _batches(list(digests)):
        pairs = UsageSlice.objects.filter(digest__in=some).values_list("digest", "id")
        found.update(pairs)
    return found


def _upsert(model: type[Rollup], num_rows: int) -> str:
    """Return SQL that inserts rows or adds to existing ones. Django's upsert only replaces."""
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


def _compact(model: type[Rollup], row_ids: Sequence[int]) -> None:
    rows = model._default_manager.filter(pk__in=row_ids).only("histograms")
    for row in rows:
        row.histograms = histogram.compact(bytes(row.histograms))
        row.save(update_fields=["histograms"])


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (
        items[at : at + _ROWS_IN_A_STATEMENT] for at in range(0, len(items), _ROWS_IN_A_STATEMENT)
    )
