"""Stretches of time, and which roll-ups tell about them. Arithmetic on seconds since 1970.

Days elsewhere do not begin at midnight in UTC, where roll-ups do. But a day from 22:00 on is
the day from the next midnight on, less its last two hours, and with the two before it. So only
the hours between the two midnights are read, not all: a tenth of the rows in Berlin."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from enum import StrEnum
from itertools import groupby, pairwise, takewhile

from django.core.exceptions import ValidationError

from accounts.usage.rollups import DAY_S, HOUR_S, MINUTE_S

MAX_POINTS = 1500
"""Of a series: a day of minutes, two months of hours."""


class Granularity(StrEnum):
    """How long a point of a series is; days are those of the reader's time zone."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


_YEARS = range(1970, 9001)


def check_moment(moment: datetime) -> None:
    """Raises ValidationError for a time that is so far away that there is none a day before it,
    or in another time zone."""
    if moment.year not in _YEARS:
        raise ValidationError(f"Choose a year from {_YEARS[0]} to {_YEARS[-1]}.")


class TooManyPoints(ValueError):
    """A series would be too long. The message says what to change."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Since when there are minutes and hours; days are there for ever."""

    minutes_since_s: int
    hours_since_s: int

    def unit_at(self, at_s: int) -> int:
        """What roll-ups there are around `at_s`: the shortest unit, in seconds."""
        if at_s < round_up(self.hours_since_s, DAY_S):
            return DAY_S
        return HOUR_S if at_s < round_up(self.minutes_since_s, HOUR_S) else MINUTE_S

    def fit(self, at_s: int) -> int:
        """The last border of a unit that is not after `at_s`."""
        return round_down(at_s, self.unit_at(at_s))

    def widen(self, since: datetime, until: datetime) -> tuple[int, int]:
        """The shortest period of whole units that has this one in it."""
        first, last = _seconds(since), math.ceil(until.timestamp())
        return self.fit(first), round_up(last, self.unit_at(last))


@dataclass(frozen=True, slots=True)
class Part:
    """From `start_s` to before `end_s`, told by roll-ups of `unit_s`."""

    unit_s: int
    start_s: int
    end_s: int

    @property
    def starts(self) -> range:
        """Of its roll-ups."""
        return range(self.start_s, self.end_s, self.unit_s)


def usual_granularity(since: datetime, until: datetime) -> Granularity:
    """What gives a chart some dozens to some hundreds of points."""
    length = until - since
    if length <= timedelta(hours=4):
        return Granularity.MINUTE
    return Granularity.HOUR if length <= timedelta(days=5) else Granularity.DAY


def borders(
    since: datetime, until: datetime, granularity: Granularity, zone: tzinfo, kept: Kept
) -> list[int]:
    """Where the points of a series begin, and where the last one ends.

    The first and last may be shorter than the others, and where the fine roll-ups are gone,
    borders move down to what is left. Raises `TooManyPoints`.
    """
    length_s = {"minute": MINUTE_S, "hour": HOUR_S, "day": DAY_S}[granularity]
    num_points = (until - since).total_seconds() / length_s
    if num_points > MAX_POINTS:
        raise TooManyPoints(
            f"A point for each {granularity} makes {num_points:.0f} of them, and {MAX_POINTS} are "
            "the most. Choose a coarser granularity or a shorter period."
        )
    first, last = kept.widen(since, until)
    ticks = takewhile(lambda at_s: at_s < last, _ticks(since, granularity, zone))
    inner = {kept.fit(at_s) for at_s in ticks if at_s > first}
    return sorted({first, last} | inner)


@dataclass(frozen=True, slots=True)
class Run:
    """Points of one length, side by side: the first is number `first` of the series."""

    first: int
    start_s: int
    point_s: int
    borders: tuple[int, ...]


def runs(borders: Sequence[int]) -> Iterator[Run]:
    """A series cut where its points change their length, as days do with the summer time."""
    points = enumerate(pairwise(borders))
    for point_s, same in groupby(points, key=lambda point: point[1][1] - point[1][0]):
        found = list(same)
        first, (start_s, _) = found[0]
        yield Run(first, start_s, point_s, (start_s, *(end_s for _, (_, end_s) in found)))


@dataclass(frozen=True, slots=True)
class Reading:
    """Roll-ups to read, and to which points of a series they are added.

    They are grouped in pieces: piece p has those from `start_s + p * piece_s` on. It is added
    to point `added_to + p` and taken from point `taken_from + p`, if those are among `points`.
    """

    unit_s: int
    parts: tuple[Part, ...]
    start_s: int
    piece_s: int
    points: range
    added_to: int
    taken_from: int | None = None

    def targets(self, piece: int) -> Iterator[tuple[int, int]]:
        """The points that a piece belongs to: their numbers, with 1, or with -1 for those that
        it is taken from."""
        if self.added_to + piece in self.points:
            yield self.added_to + piece, 1
        if self.taken_from is not None and self.taken_from + piece in self.points:
            yield self.taken_from + piece, -1


def readings(run: Run) -> list[Reading]:
    """What tells the points of a run.

    Fine units come before coarse ones, so that what is taken from a day was in it, also when
    more is added between the two queries.
    """
    midnight_s = round_down(run.start_s + DAY_S // 2, DAY_S)
    points = range(run.first, run.first + len(run.borders) - 1)
    if run.point_s != DAY_S or run.start_s == midnight_s or len(points) == 1:
        return _by_unit(parts(run.borders), run.start_s, run.point_s, points, run.first)
    days = Part(DAY_S, midnight_s, midnight_s + len(points) * DAY_S)
    first, last = sorted((run.start_s, midnight_s))
    between = [
        Part(part.unit_s, part.start_s + number * DAY_S, part.end_s + number * DAY_S)
        for number in range(len(run.borders))
        for part in _cover(first, last, (HOUR_S, MINUTE_S))
    ]
    # The point that begins here has what is before midnight, and lacks what is after it.
    added_to, taken_from = run.first, run.first - 1
    if midnight_s < run.start_s:
        added_to, taken_from = taken_from, added_to
    return [
        *_by_unit(between, first, DAY_S, points, added_to, taken_from),
        Reading(DAY_S, (days,), midnight_s, DAY_S, points, run.first),
    ]


def parts(borders: Sequence[int]) -> list[Part]:
    """The coarsest roll-ups that have all of these borders; in order, neighbours joined."""
    joined: list[Part] = []
    for start_s, end_s in pairwise(borders):
        for part in _cover(start_s, end_s, (DAY_S, HOUR_S, MINUTE_S)):
            last = joined[-1] if joined else None
            if last and (last.unit_s, last.end_s) == (part.unit_s, part.start_s):
                joined[-1] = Part(part.unit_s, last.start_s, part.end_s)
            else:
                joined.append(part)
    return joined


def round_down(at_s: int, unit_s: int) -> int:
    """The last multiple of `unit_s` that is not after `at_s`."""
    return at_s // unit_s * unit_s


def round_up(at_s: int, unit_s: int) -> int:
    """The first multiple of `unit_s` that is not before `at_s`."""
    return -(-at_s // unit_s) * unit_s


def _by_unit(
    found: Sequence[Part],
    start_s: int,
    piece_s: int,
    points: range,
    added_to: int,
    taken_from: int | None = None,
) -> list[Reading]:
    return [
        Reading(unit_s, of_unit, start_s, piece_s, points, added_to, taken_from)
        for unit_s in (MINUTE_S, HOUR_S, DAY_S)
        if (of_unit := tuple(part for part in found if part.unit_s == unit_s))
    ]


def _cover(start_s: int, end_s: int, units_s: Sequence[int]) -> Iterator[Part]:
    unit_s, *finer = units_s
    first, last = round_up(start_s, unit_s), round_down(end_s, unit_s)
    if first >= last:
        if finer and start_s < end_s:
            yield from _cover(start_s, end_s, finer)
        return
    if start_s < first:
        yield from _cover(start_s, first, finer)
    yield Part(unit_s, first, last)
    if last < end_s:
        yield from _cover(last, end_s, finer)


def _ticks(since: datetime, granularity: Granularity, zone: tzinfo) -> Iterator[int]:
    """Minutes, hours or midnights of the zone, from before `since` on."""
    local = since.astimezone(zone)
    if granularity is Granularity.DAY:
        day = local.date()
        while True:
            yield _seconds(datetime.combine(day, time(), zone))
            day += timedelta(days=1)
    zeros = {"second": 0, "microsecond": 0}
    if granularity is Granularity.HOUR:
        zeros["minute"] = 0
    at_s = _seconds(local.replace(**zeros))  # type: ignore[arg-type]
    while True:
        yield at_s
        at_s += HOUR_S if granularity is Granularity.HOUR else MINUTE_S


def _seconds(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp())
