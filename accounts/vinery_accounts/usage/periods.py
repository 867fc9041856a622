"""Periods of time, and the roll-ups that cover them. Arithmetic on Unix seconds.

Roll-ups of days begin at midnight UTC. A day that begins at 22:00 UTC is the UTC day from the next
midnight, without the last two hours, and with the two hours before that midnight. So a report in
Berlin reads the days and the hours between the two midnights: a tenth of the rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from enum import StrEnum
from itertools import count, groupby, pairwise, takewhile

from django.core.exceptions import ValidationError

from vinery_accounts.usage.rollups import DAY_S, HOUR_S, MINUTE_S

MAX_POINTS = 1500  # the maximum length of a series: a day of minutes, two months of hours


class Granularity(StrEnum):
    """The length of a point. Days are those of the reader's time zone."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """The length of a point, except of a day in which clocks change."""
        return timedelta(**{f"{self.value}s": 1})


_YEARS = range(1970, 9001)
# The indexes of points, and their signs.
_Signed = tuple[tuple[int, int], ...]


def check_moment(moment: datetime) -> None:
    if moment.year not in _YEARS:
        raise ValidationError(f"Choose a year from {_YEARS[0]} to {_YEARS[-1]}.")


def calendar_month(now: datetime, *, is_last: bool) -> tuple[datetime, datetime]:
    """Return the month until now, or all of the month before, in the time zone of `now`."""
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    return ((begin - timedelta(days=1)).replace(day=1), begin) if is_last else (begin, now)


class TooManyPoints(ValueError):
    """A series would have too many points. The message names the remedy."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The times from which roll-ups of minutes and hours exist. Days are always complete."""

    minutes_since_s: int
    hours_since_s: int

    def unit_at(self, at_s: int) -> int:
        """Return the shortest unit of roll-ups around `at_s`, in seconds."""
        if at_s < round_up(self.hours_since_s, DAY_S):
            return DAY_S
        return HOUR_S if at_s < round_up(self.minutes_since_s, HOUR_S) else MINUTE_S

    def fit(self, at_s: int) -> int:
        return round_down(at_s, self.unit_at(at_s))

    def widen(self, since: datetime, until: datetime) -> tuple[int, int]:
        first, last = seconds_of(since), math.ceil(until.timestamp())
        return self.fit(first), round_up(last, self.unit_at(last))


def usual_granularity(since: datetime, until: datetime) -> Granularity:
    length = until - since
    if length <= timedelta(hours=4):
        return Granularity.MINUTE
    return Granularity.HOUR if length <= timedelta(days=5) else Granularity.DAY


def borders(
    since: datetime, until: datetime, granularity: Granularity, zone: tzinfo, kept: Kept
) -> list[int]:
    """Return the start times of the points of a series, and the end of the last point. The first
    and the last point may be shorter. Where fine roll-ups have been deleted, borders move down to
    the coarser units. Raises `TooManyPoints`."""
    num_points = (until - since) / granularity.length
    if num_points > MAX_POINTS:
        raise TooManyPoints(
            f"One point for each {granularity} is {num_points:.0f} points; at most {MAX_POINTS} "
            "are allowed. Choose a coarser granularity or a shorter period."
        )
    first, last = kept.widen(since, until)
    ticks = takewhile(lambda at_s: at_s < last, _ticks(since, granularity, zone))
    return sorted({first, last} | {kept.fit(at_s) for at_s in ticks if at_s > first})


def through_today(borders: Sequence[int], now_s: float) -> Sequence[int]:
    """Return borders that contain the same usage: if the last point ends now, the rest of its day,
    or of its hour, has none yet. So one roll-up is read instead of many shorter ones."""
    if not borders or not 0 <= borders[-1] - now_s <= DAY_S:
        return borders
    *others, last = borders
    for unit_s in (DAY_S, HOUR_S):
        if round_down(last, unit_s) >= others[-1]:
            return [*others, round_up(last, unit_s)]
    return borders


@dataclass(frozen=True, slots=True)
class Reading:
    """Roll-ups of one unit to read, and the points of a series to which they are added. Each part
    is a range of start times. Roll-ups are grouped in bins: bin b begins at `start_s + b * bin_s`.
    For each pair of a point and a sign in `first`, bin b is added to (1) or subtracted from (-1)
    the b-th later point, if `points` contains it."""

    parts: tuple[range, ...]
    start_s: int
    bin_s: int
    points: range
    first: _Signed

    @property
    def unit_s(self) -> int:
        return self.parts[0].step

    @property
    def num_starts(self) -> int:
        return sum(map(len, self.parts))

    @property
    def has_one_bin(self) -> bool:
        return self.parts[-1][-1] < self.start_s + self.bin_s

    def targets(self, bin_: int) -> Iterator[tuple[int, int]]:
        """Yield the points of a bin with signs: 1 to add the bin, -1 to subtract it."""
        for point, sign in self.first:
            if point + bin_ in self.points:
                yield point + bin_, sign


def readings(borders: Sequence[int]) -> Iterator[Reading]:
    """Yield the readings that give the points of a series. A series is split where the length of
    points changes, as days do with daylight saving."""
    points = enumerate(pairwise(borders))
    for _, same in groupby(points, key=lambda point: point[1][1] - point[1][0]):
        indexes = [index for index, _ in same]
        yield from _of_equal_points(indexes[0], borders[indexes[0] : indexes[-1] + 2])


def _of_equal_points(number: int, borders: Sequence[int]) -> Iterator[Reading]:
    """Yield the readings of adjacent points of one length, the first of which has this number. Fine
    units come before coarse ones. So usage that is subtracted from a day was part of it, also if
    more is stored between the two queries."""
    start_s, next_s, *_ = borders
    midnight_s = round_down(start_s + DAY_S // 2, DAY_S)
    points = range(number, number + len(borders) - 1)
    if next_s - start_s != DAY_S or start_s == midnight_s or len(points) == 1:
        yield from _by_unit(_joined(borders), start_s, next_s - start_s, points, ((number, 1),))
        return
    first, last = sorted((start_s, midnight_s))
    between = [
        range(part.start + day * DAY_S, part.stop + day * DAY_S, part.step)
        for day in range(len(borders))
        for part in _cover(first, last, (HOUR_S, MINUTE_S))
    ]
    # The point includes the hours before midnight UTC, and excludes the hours after.
    sign = 1 if start_s < midnight_s else -1
    yield from _by_unit(between, first, DAY_S, points, ((number, sign), (number - 1, -sign)))
    days = range(midnight_s, midnight_s + len(points) * DAY_S, DAY_S)
    yield Reading((days,), midnight_s, DAY_S, points, ((number, 1),))


def _joined(borders: Sequence[int]) -> list[range]:
    """Return the coarsest roll-ups with all of these borders, in order, adjacent ones joined."""
    joined: list[range] = []
    for start_s, end_s in pairwise(borders):
        for part in _cover(start_s, end_s, (DAY_S, HOUR_S, MINUTE_S)):
            last = joined[-1] if joined else range(0)
            if last and (last.step, last.stop) == (part.step, part.start):
                joined[-1] = range(last.start, part.stop, part.step)
            else:
                joined.append(part)
    return joined


def seconds_of(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp())


def moment_of(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def round_down(at_s: int, unit_s: int) -> int:
    return at_s // unit_s * unit_s


def round_up(at_s: int, unit_s: int) -> int:
    return -(-at_s // unit_s) * unit_s


def _by_unit(
    found: Sequence[range], start_s: int, bin_s: int, points: range, first: _Signed
) -> Iterator[Reading]:
    for unit_s in (MINUTE_S, HOUR_S, DAY_S):
        if of_unit := tuple(part for part in found if part.step == unit_s):
            yield Reading(of_unit, start_s, bin_s, points, first)


def _cover(start_s: int, end_s: int, units_s: Sequence[int]) -> Iterator[range]:
    """Yield the start times of the coarsest of these units that cover the period, in order."""
    unit_s, *finer = units_s
    first, last = round_up(start_s, unit_s), round_down(end_s, unit_s)
    if first >= last:
        if finer and start_s < end_s:
            yield from _cover(start_s, end_s, finer)
        return
    if start_s < first:
        yield from _cover(start_s, first, finer)
    yield range(first, last, unit_s)
    if last < end_s:
        yield from _cover(last, end_s, finer)


def _ticks(since: datetime, granularity: Granularity, zone: tzinfo) -> Iterator[int]:
    """Yield minutes, hours or midnights of the zone, beginning at or before `since`."""
    local = since.astimezone(zone)
    if granularity is Granularity.DAY:
        day = local.date()
        while True:
            yield seconds_of(datetime.combine(day, time(), zone))
            day += timedelta(days=1)
    step_s = HOUR_S if granularity is Granularity.HOUR else MINUTE_S
    offset_s = int((local.utcoffset() or timedelta()).total_seconds())
    yield from count(round_down(seconds_of(since) + offset_s, step_s) - offset_s, step_s)
