"""Compares roll-ups with the usage records that exist, and repairs them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction

from accounts.models import Rollup, UsageRecord
from accounts.usage import cutoffs, histogram, periods, rollups
from accounts.usage.balance import num_verified_rows
from accounts.usage.dimensions import RollupDimensions
from accounts.usage.rollups import DAY_S, HOUR_S, LEVELS, SUMS, Tallies, Tally

_UNIT_NAMES = {rollups.MINUTE_S: "minute", HOUR_S: "hour", DAY_S: "day"}
_ROWS_IN_MEMORY = 5000

Value = float | str


@dataclass(frozen=True, slots=True)
class Difference:
    """One sum of one slice that differs between records and roll-ups."""

    unit: str
    start: datetime
    slice: str
    column: str
    in_rows: Value
    in_rollups: Value

    def __str__(self) -> str:
        return (
            f"{self.unit} {self.start:%Y-%m-%d %H:%M} {self.slice}: {self.column} is "
            f"{self.in_rows} in the records and {self.in_rollups} in the roll-ups"
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """The result for one day in UTC."""

    day: datetime
    num_rows: int
    differences: tuple[Difference, ...]


def verify(since: datetime, until: datetime, *, repair: bool = False) -> Iterator[Checked]:
    """Check each day that has records. With `repair`, rewrite the roll-ups that differ.

    While a day is checked, new usage waits in the journals.
    """
    whole_since = cutoffs.kept_since(UsageRecord)
    first = periods.round_up(_seconds(max(since.astimezone(UTC), whole_since)), DAY_S)
    if since > whole_since:
        first = periods.round_down(_seconds(since), DAY_S)
    for day_s in range(first, _seconds(until), DAY_S):
        with transaction.atomic():
            rollups.take_usage_lock()
            yield _check_day(day_s, repair=repair)


def _check_day(day_s: int, *, repair: bool) -> Checked:
    if _is_empty(day_s):
        return Checked(_moment(day_s), 0, ())
    is_whole = all(day_s >= _seconds(cutoffs.kept_since(model)) for model in LEVELS.values())
    num_rows = num_verified_rows(day_s) if is_whole else None
    if num_rows is None:
        return _compare_day(day_s, repair=repair)
    return Checked(_moment(day_s), num_rows, ())


def _is_empty(day_s: int) -> bool:
    """Whether a day has neither records nor roll-ups, as most days of a small installation."""
    day, next_day = _moment(day_s), _moment(day_s + DAY_S)
    in_day = {"start_s__gte": day_s, "start_s__lt": day_s + DAY_S}
    tables = [model._default_manager.filter(**in_day) for model in LEVELS.values()]
    records = UsageRecord.objects.filter(created_at__gte=day, created_at__lt=next_day)
    return not any(rows.exists() for rows in (records, *tables))


def _compare_day(day_s: int, *, repair: bool) -> Checked:
    num_rows, differences, of_day = 0, [], defaultdict(list)
    for hour_s in range(day_s, day_s + DAY_S, HOUR_S):
        levels = rollups.tallies_of(_rows(hour_s))
        for unit, tally in levels.pop(DAY_S).items():
            of_day[unit].append(tally)
        for unit_s, tallies in levels.items():
            differences += _check(unit_s, hour_s, hour_s + HOUR_S, tallies, repair=repair)
        num_rows += _num_requests(levels[HOUR_S])
    tallies = {unit: Tally.of(parts) for unit, parts in of_day.items()}
    differences += _check(DAY_S, day_s, day_s + DAY_S, tallies, repair=repair)
    return Checked(_moment(day_s), num_rows, tuple(differences))


def _rows(hour_s: int) -> Iterator[UsageRecord]:
    hour = _moment(hour_s)
    rows = UsageRecord.objects.filter(
        created_at__gte=hour, created_at__lt=hour + timedelta(hours=1)
    )
    return rows.order_by().iterator(chunk_size=_ROWS_IN_MEMORY)


def _num_requests(tallies: Tallies) -> int:
    return int(
        sum(
            tally.sums[0]
            for (_, each), tally in tallies.items()
            if each.dimensions == RollupDimensions.ALL
        )
    )


def _check(
    unit_s: int, start_s: int, end_s: int, tallies: Tallies, *, repair: bool
) -> list[Difference]:
    model = LEVELS[unit_s]
    if start_s < _seconds(cutoffs.kept_since(model)):
        return []
    found = list(_differences(unit_s, _stored(model, start_s, end_s), tallies))
    if found and repair:
        model._default_manager.filter(start_s__gte=start_s, start_s__lt=end_s).delete()
        rollups.add_tallies(model, tallies, rollups.ids_of({each for _, each in tallies}))
    return found


def _stored(
    model: type[Rollup], start_s: int, end_s: int
) -> dict[tuple[int, str], tuple[str, Tally]]:
    rows = model._default_manager.filter(start_s__gte=start_s, start_s__lt=end_s)
    return {
        (row.start_s, row.slice.digest): (
            _describe(row.slice.dimensions, row.slice),
            Tally(
                [getattr(row, column) for column in SUMS], histogram.decode(bytes(row.histograms))
            ),
        )
        for row in rows.select_related("slice").iterator(chunk_size=_ROWS_IN_MEMORY)
    }


def _differences(
    unit_s: int, stored: dict[tuple[int, str], tuple[str, Tally]], tallies: Tallies
) -> Iterator[Difference]:
    expected = {
        (start_s, each.digest): (_describe(each.dimensions, each), tally)
        for (start_s, each), tally in tallies.items()
    }
    nothing = Tally()
    for unit in sorted(expected.keys() | stored.keys()):
        description, _ = expected.get(unit) or stored[unit]
        _, in_rows = expected.get(unit, ("", nothing))
        _, in_rollups = stored.get(unit, ("", nothing))
        start, name = _moment(unit[0]), _UNIT_NAMES[unit_s]
        for column, mine, theirs in _unequal(in_rows, in_rollups):
            yield Difference(name, start, description, column, mine, theirs)


def _unequal(in_rows: Tally, in_rollups: Tally) -> Iterator[tuple[str, Value, Value]]:
    for column, mine, theirs in zip(SUMS, in_rows.sums, in_rollups.sums, strict=True):
        # Sums of fractions depend on the order of addition.
        if not math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9):
            yield column, mine, theirs
    if in_rows.buckets != in_rollups.buckets:
        mine, theirs = (sum(each.buckets.values()) for each in (in_rows, in_rollups))
        yield "histograms", f"{mine} measured", f"{theirs} measured"


def _describe(dimensions: str, about: object) -> str:
    """Return the names and values of a slice."""
    names = ("organization_name", "project_name", "username", "key_name")
    whats = ("model", "endpoint", "outcome")
    words = (getattr(about, column) for column in (*names, *whats))
    return f"{dimensions}: {' / '.join(word for word in words if word) or 'no key'}"


def _seconds(moment: datetime) -> int:
    return math.floor(moment.timestamp())


def _moment(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
