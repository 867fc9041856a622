"""Compares roll-ups with the usage records that exist, and repairs them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from vinery_accounts.models import Rollup, SpanRollup, UsageRecord
from vinery_accounts.usage import retention, rollups
from vinery_accounts.usage.histogram import decode
from vinery_accounts.usage.periods import moment_of, round_down, round_up, seconds_of
from vinery_accounts.usage.rollups import DAY_S, HOUR_S, LEVELS, MINUTE_S, SUMS, Slice, Tallies

_UNIT_NAMES = {MINUTE_S: "minute", HOUR_S: "hour", DAY_S: "day"}
_ROWS_IN_MEMORY = 5000


@dataclass(frozen=True, slots=True)
class Checked:
    """The result for one day in UTC. A difference is a sum of one slice, in words."""

    day: datetime
    num_rows: int
    differences: tuple[str, ...]


def verify(since: datetime, until: datetime, *, repair: bool = False) -> Iterator[Checked]:
    """Check each day that has records. With `repair`, rewrite the roll-ups that differ. While a day
    is checked, new usage waits in the journals, but never for the caller."""
    whole_since = retention.kept_since(UsageRecord)
    first = round_up(seconds_of(max(since.astimezone(UTC), whole_since)), DAY_S)
    if since > whole_since:
        first = round_down(seconds_of(since), DAY_S)
    for day_s in range(first, seconds_of(until), DAY_S):
        with transaction.atomic():
            rollups.take_usage_lock()
            # Most days of a small installation have neither records nor roll-ups.
            in_day = (_stored(model, day_s, day_s + DAY_S) for model in LEVELS.values())
            is_used = any(rows.exists() for rows in (_records(day_s, day_s + DAY_S), *in_day))
            nothing = Checked(moment_of(day_s), 0, ())
            checked = _check_day(day_s, repair=repair) if is_used else nothing
        yield checked


def _check_day(day_s: int, *, repair: bool) -> Checked:
    num_rows = 0
    differences: list[str] = []
    of_day: list[tuple[rollups.Unit, rollups.Tally]] = []
    for hour_s in range(day_s, day_s + DAY_S, HOUR_S):
        rows = _records(hour_s, hour_s + HOUR_S).values_list(*rollups.OF_RECORDS, named=True)
        levels = rollups.tallies_of(rows.iterator(chunk_size=_ROWS_IN_MEMORY))
        of_day += levels.pop(DAY_S).items()
        for unit_s, tallies in levels.items():
            differences += _check(unit_s, hour_s, hour_s + HOUR_S, tallies, repair=repair)
        num_rows += sum(int(tally.sums[0]) for tally in levels[MINUTE_S].values())
    of_days = rollups.together(of_day)
    differences += _check(DAY_S, day_s, day_s + DAY_S, of_days, repair=repair)
    return Checked(moment_of(day_s), num_rows, tuple(differences))


def _check(unit_s: int, start_s: int, end_s: int, tallies: Tallies, *, repair: bool) -> list[str]:
    model = LEVELS[unit_s]
    if start_s < seconds_of(retention.kept_since(model)):
        return []
    stored = _stored(model, start_s, end_s)
    found = _differences(_UNIT_NAMES[unit_s], tallies, tallies_in(stored))
    if found and repair:
        stored.delete()
        SpanRollup._default_manager.filter(start_s=round_down(start_s, rollups.SPAN_S)).delete()
        rollups.add_tallies(model, tallies, rollups.ids_of({each for _, each in tallies}))
    return found


def _records(start_s: int, end_s: int) -> QuerySet[UsageRecord]:
    bounds = {"created_at__gte": moment_of(start_s), "created_at__lt": moment_of(end_s)}
    return UsageRecord.objects.filter(**bounds).order_by()


def _stored(model: type[Rollup], start_s: int, end_s: int) -> QuerySet[Rollup]:
    return model._default_manager.filter(start_s__gte=start_s, start_s__lt=end_s).order_by()


def tallies_in(stored: QuerySet[Rollup]) -> Tallies:
    about = [f"slice__{name}" for name in Slice._fields]
    rows: QuerySet[Any, Any] = stored.values_list("start_s", "histograms", *SUMS, *about)
    return {
        (start_s, Slice(*values[len(SUMS) :])): rollups.Tally(values[: len(SUMS)], bytes(encoded))
        for start_s, encoded, *values in rows.iterator(chunk_size=_ROWS_IN_MEMORY)
    }


def _differences(unit: str, in_rows: Tallies, in_rollups: Tallies) -> list[str]:
    nothing = rollups.Tally([0] * len(SUMS), b"")
    return sorted(
        f"{unit} {moment_of(start_s):%Y-%m-%d %H:%M} {_describe(about)}: {column} is {mine} in the "
        f"records and {theirs} in the roll-ups"
        for start_s, about in in_rows.keys() | in_rollups.keys()
        for column, mine, theirs in _unequal(
            in_rows.get((start_s, about), nothing), in_rollups.get((start_s, about), nothing)
        )
    )


def _unequal(in_rows: rollups.Tally, stored: rollups.Tally) -> Iterator[tuple[str, object, object]]:
    for column, mine, theirs in zip(SUMS, in_rows.sums, stored.sums, strict=True):
        # Sums of fractions depend on the order of addition.
        if mine != theirs and not math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9):
            yield column, mine, theirs
    if in_rows.histograms != stored.histograms:
        counts = [decode(each.histograms) for each in (in_rows, stored)]
        if counts[0] != counts[1]:
            first, second = (f"{sum(each.values())} measured" for each in counts)
            yield "histograms", first, second


def _describe(about: Slice) -> str:
    names = (about.organization_name, about.project_name, about.username, about.key_name)
    words = filter(None, (*names, about.model, about.endpoint, about.outcome))
    return f"{about.dimensions}: {' / '.join(words) or 'no key'}"
