"""Usage added up by minute, hour and day, in the transaction that stores the rows.

So at any moment the roll-ups equal the rows, however late a row comes and whatever dies: a
job that follows the rows with a watermark would have to know about rows that commit out of
order. The price is that batches are stored one after the other (`one_at_a_time`), which makes
them larger, not fewer, when there are many writers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import msgspec
from django.db import connection
from django.db.models import Q

from accounts.models import (
    DayRollup,
    HourRollup,
    MinuteRollup,
    Rollup,
    UsageRecord,
    UsageSlice,
)
from accounts.usage import histogram
from accounts.usage.entries import Outcome
from accounts.usage.histogram import Latency, Places

T = TypeVar("T")

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
LEVELS: dict[int, type[Rollup]] = {MINUTE_S: MinuteRollup, HOUR_S: HourRollup, DAY_S: DayRollup}
SUMS = (
    "num_requests",
    "num_errors",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_image_tokens",
    "num_output_tokens",
    "num_reasoning_tokens",
    "weighted_tokens",
)
"""The columns of a roll-up that are added up."""

_TOKENS = SUMS[2:]
_LATENCIES = {
    Latency.FIRST_TOKEN: "first_token_ms",
    Latency.INTER_TOKEN: "inter_token_ms",
    Latency.TOTAL: "total_ms",
    Latency.QUEUE: "queue_ms",
}
# Of PostgreSQL's advisory locks, which are numbers; this one spells "usage".
_LOCK = 0x7573616765
_BATCH_SIZE = 200


class Slice(NamedTuple):
    """What a `UsageSlice` is about, in the order of its digest, which must not change."""

    key_id: int | None
    key_name: str
    user_id: int | None
    username: str
    project_id: int | None
    project_name: str
    organization_id: int | None
    organization_name: str
    model: str
    endpoint: str
    outcome: str
    status_class: int | None

    @property
    def digest(self) -> str:
        """What tells it from all others, where a unique index over nulls could not."""
        return blake2b(msgspec.json.encode(tuple(self)), digest_size=16).hexdigest()

    def record(self) -> UsageSlice:
        """A row, not yet saved."""
        return UsageSlice(digest=self.digest, **self._asdict())


@dataclass(slots=True)
class Tally:
    """What is added up of the requests of one slice in one unit."""

    sums: list[float] = field(default_factory=lambda: [0] * len(SUMS))
    places: Places = field(default_factory=Counter)

    def count(self, row: UsageRecord) -> None:
        """Add one request."""
        self.sums[0] += 1
        self.sums[1] += Outcome(row.outcome).is_error
        for at, column in enumerate(_TOKENS, start=2):
            self.sums[at] += getattr(row, column)
        for latency, column in _LATENCIES.items():
            duration_ms = getattr(row, column)
            if duration_ms is not None:
                self.places[histogram.place_of(latency, duration_ms)] += 1

    def add(self, other: Tally) -> None:
        """Add what another one has."""
        self.sums = [mine + theirs for mine, theirs in zip(self.sums, other.sums, strict=True)]
        self.places.update(other.places)


Unit = tuple[int, Slice]  # when it starts, and whose it is
Tallies = dict[Unit, Tally]


def one_at_a_time() -> None:
    """Let no other transaction add to the books until this one ends.

    SQLite has one writer anyway.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def add_rows(rows: Iterable[UsageRecord]) -> None:
    """Add new rows to all roll-ups, in a transaction that is `one_at_a_time`."""
    tallies = tally(rows, MINUTE_S)
    slice_ids = _ids_of({each for _, each in tallies})
    for unit_s, model in LEVELS.items():
        tallies = coarser(tallies, unit_s)
        _add(model, tallies, slice_ids)


def tally(rows: Iterable[UsageRecord], unit_s: int) -> Tallies:
    """Add up rows by unit and slice."""
    tallies: Tallies = defaultdict(Tally)
    for row in rows:
        start_s = int(row.created_at.timestamp()) // unit_s * unit_s
        tallies[start_s, slice_of(row)].count(row)
    return tallies


def coarser(tallies: Mapping[Unit, Tally], unit_s: int) -> Tallies:
    """The same in longer units."""
    coarse: Tallies = defaultdict(Tally)
    for (start_s, each), fine in tallies.items():
        coarse[start_s // unit_s * unit_s, each].add(fine)
    return coarse


def slice_of(row: UsageRecord) -> Slice:
    """What a row is about.

    Clients can ask for models that do not exist, by as many names as they like; lest these
    fill the books for ever, they count as "".
    """
    is_unknown = row.outcome == Outcome.REJECTED and row.http_status == 404
    return Slice(
        key_id=row.key_id,
        key_name=row.key_name,
        user_id=row.user_id,
        username=row.username,
        project_id=row.project_id,
        project_name=row.project_name,
        organization_id=row.organization_id,
        organization_name=row.organization_name,
        model="" if is_unknown else row.model,
        endpoint=row.endpoint,
        outcome=str(row.outcome),
        status_class=row.http_status and row.http_status // 100,
    )


def _ids_of(slices: Collection[Slice]) -> dict[Slice, int]:
    """The ids of these, of new ones too."""
    digests = {each.digest: each for each in slices}
    known = _known(digests)
    missing = [each.record() for digest, each in digests.items() if digest not in known]
    if missing:
        UsageSlice.objects.bulk_create(missing, ignore_conflicts=True)
        known = _known(digests)
    return {each: known[digest] for digest, each in digests.items()}


def _known(digests: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in _batches(list(digests)):
        found.update(
            UsageSlice.objects.filter(digest__in=some).values_list("digest", "id").iterator()
        )
    return found


def _add(
    model: type[Rollup], tallies: Mapping[Unit, Tally], slice_ids: Mapping[Slice, int]
) -> None:
    by_place = {(start_s, slice_ids[each]): tally for (start_s, each), tally in tallies.items()}
    for some in _batches(sorted(by_place)):
        known = _rollups_at(model, some)
        fresh = [
            _sum(known.get(place) or model(start_s=place[0], slice_id=place[1]), by_place[place])
            for place in some
        ]
        model._default_manager.bulk_create(
            fresh,
            update_conflicts=True,
            unique_fields=["start_s", "slice"],
            update_fields=[*SUMS, "histograms"],
        )


def _rollups_at(
    model: type[Rollup], places: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Rollup]:
    """Those that are there, of these starts and slices."""
    slices_at: dict[int, list[int]] = defaultdict(list)
    for start_s, slice_id in places:
        slices_at[start_s].append(slice_id)
    wanted = Q()
    for start_s, slices in slices_at.items():
        wanted |= Q(start_s=start_s, slice_id__in=slices)
    found = model._default_manager.filter(wanted).defer("id")
    return {(each.start_s, each.slice_id): each for each in found}


def _sum(rollup: Rollup, more: Tally) -> Rollup:
    fresh = type(rollup)(start_s=rollup.start_s, slice_id=rollup.slice_id)
    for column, value in zip(SUMS, more.sums, strict=True):
        setattr(fresh, column, getattr(rollup, column) + value)
    places = more.places.copy()
    places.update(histogram.decode(bytes(rollup.histograms)))
    fresh.histograms = histogram.encode(places)
    return fresh


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + _BATCH_SIZE] for at in range(0, len(items), _BATCH_SIZE))
