"""Aggregates usage by minute, hour and day, in the transaction that stores the records.

So the roll-ups equal the records at any moment, also after late records and kills. A job that
follows the records would have to handle records that commit out of order. In return, writers
store batches one after the other (`take_usage_lock`); with many writers batches get larger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from django.db import connection

from accounts.models.rollups import DayRollup, HourRollup, MinuteRollup, Rollup, UsageSlice
from accounts.models.usage import UsageRecord
from accounts.usage import histogram
from accounts.usage.dimensions import RollupDimensions, Slice, slice_of
from accounts.usage.entries import Outcome
from accounts.usage.histogram import BucketCounts, Latency

T = TypeVar("T")

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
LEVELS: dict[int, type[Rollup]] = {MINUTE_S: MinuteRollup, HOUR_S: HourRollup, DAY_S: DayRollup}
# Few requests share a minute, so fewer dimensions would not save rows there.
ROLLUP_DIMENSIONS: dict[int, tuple[RollupDimensions, ...]] = {
    MINUTE_S: (RollupDimensions.ALL,),
    HOUR_S: tuple(RollupDimensions),
    DAY_S: tuple(RollupDimensions),
}
SUMS = (
    "num_requests",
    "num_errors",
    "num_taken",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_image_tokens",
    "num_audio_tokens",
    "num_output_tokens",
    "num_reasoning_tokens",
    "weighted_tokens",
    "energy_mj",
)
"""The summed columns of a roll-up."""

OF_ROWS = SUMS[3:]
"""The summed columns that usage records have as well."""

LATENCIES = {
    Latency.FIRST_TOKEN: "first_token_ms",
    Latency.INTER_TOKEN: "inter_token_ms",
    Latency.TOTAL: "total_ms",
    Latency.QUEUE: "queue_ms",
}
# The number of a PostgreSQL advisory lock; it spells "usage".
_LOCK = 0x7573616765
_ROWS_IN_A_STATEMENT = 500
# Concatenated histograms that are longer are compacted. One with all buckets has 4 KiB.
_LONG_HISTOGRAMS_BYTES = 8192


@dataclass(slots=True)
class Tally:
    """The sums of the requests of one slice in one minute, hour or day."""

    sums: list[float] = field(default_factory=lambda: [0] * len(SUMS))
    buckets: BucketCounts = field(default_factory=Counter)
    _encoded: bytes | None = None

    @property
    def histograms(self) -> bytes:
        """The encoded histogram. Read it after the last `count`: the value is kept, because one
        tally may serve the hour, the day and several sets of dimensions."""
        if self._encoded is None:
            self._encoded = histogram.encode(self.buckets)
        return self._encoded

    def count(self, row: UsageRecord) -> None:
        """Add one request."""
        self.sums[0] += 1
        self.sums[1] += Outcome(row.outcome).is_error
        self.sums[2] += row.num_prompt_tokens > 0
        for at, column in enumerate(OF_ROWS, start=3):
            self.sums[at] += getattr(row, column) or 0
        for latency, column in LATENCIES.items():
            duration_ms = getattr(row, column)
            if duration_ms is not None:
                self.buckets[histogram.bucket_index_of(latency, duration_ms)] += 1

    @classmethod
    def of(cls, tallies: Sequence[Tally]) -> Tally:
        """Return the sum of these. The sum of one tally is that tally itself."""
        if len(tallies) == 1:
            return tallies[0]
        total = cls([sum(column) for column in zip(*(each.sums for each in tallies), strict=True)])
        for each in tallies:
            total.buckets.update(each.buckets)
        return total


Unit = tuple[int, Slice]  # start in Unix seconds, and slice
Tallies = Mapping[Unit, Tally]


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
    """Return the tallies of records for each unit, in all of its dimensions."""
    by_minute: dict[Unit, Tally] = defaultdict(Tally)
    for row in rows:
        start_s = int(row.created_at.timestamp()) // MINUTE_S * MINUTE_S
        by_minute[start_s, slice_of(row)].count(row)
    levels: dict[int, Tallies] = {}
    fine: Tallies = by_minute
    for unit_s in LEVELS:
        fine = _together(
            ((start_s // unit_s * unit_s, each), tally) for (start_s, each), tally in fine.items()
        )
        levels[unit_s] = _together(
            ((start_s, each.at(dimensions)), tally)
            for (start_s, each), tally in fine.items()
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
    """Add tallies to one table of roll-ups."""
    rows: list[tuple[Any, ...]] = [
        (start_s, slice_ids[each], *tally.sums, tally.histograms)
        for (start_s, each), tally in tallies.items()
    ]
    long: list[int] = []
    with connection.cursor() as cursor:
        for some in _batches(rows):
            cursor.execute(_upsert(model, len(some)), list(chain.from_iterable(some)))
            long += [row_id for row_id, size in cursor.fetchall() if size > _LONG_HISTOGRAMS_BYTES]
    for some_ids in _batches(long):
        _compact(model, some_ids)


def _together(pairs: Iterable[tuple[Unit, Tally]]) -> Tallies:
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
