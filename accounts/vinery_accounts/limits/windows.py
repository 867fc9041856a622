"""Changes of use by time: buckets refill, and days, weeks and months begin.

Times are Unix times in milliseconds, amounts of use are in fixed-point units.

A bucket refills linearly, as OpenAI's headers and refusals imply. A limiter stores the use and its
time. A bucket has a capacity of `amount` and refills `amount` in its period: `amount` fixed-point
units in each tick. Ticks are at the same times for all buckets of a window: a bucket refills alike,
however often it is read. A bucket without a record is full.

A day is the time from one midnight to the next in a time zone. So it has 23 or 25 hours when
clocks change. Where clocks skip midnight, the day begins with the change; where midnight comes
twice, with the first.
"""

from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from vinery_accounts.limits.rules import Kind, Rule, Weekday, Window

# The starts of the last, of this and of the next window, and the end of the next.
Boundaries = tuple[int, int, int, int]

# A bucket's level is taken for another one that is at most an eighth lower, so that few are stored.
_NEARLY: Final = (8, 9)
_WEEKDAYS: Final = {day: number for number, day in enumerate(Weekday)}  # as `date.weekday`

_cached: dict[tuple[str, str, str], Boundaries] = {}


# -- Buckets ------------------------------------------------------------------------------------


def used_after(used: int, amount: int, from_ms: int, to_ms: int, tick_ms: int = 1) -> int:
    """Return the use of a bucket at `to_ms`. A clock that was set back refills nothing."""
    num_ticks = to_ms // tick_ms - from_ms // tick_ms
    return max(0, used - amount * num_ticks) if num_ticks > 0 else used


def refill_s(units: int, amount: int, tick_ms: int = 1) -> float | None:
    """Return the seconds until a bucket has refilled so many units: (limit - remaining) / (limit /
    period). None: never."""
    if units <= 0:
        return 0.0
    if not amount:
        return None
    # The fraction of a millisecond counts, because messages round it. The fraction of a longer tick
    # does not: a client that comes before the tick ends finds nothing.
    num_ticks = units / amount if tick_ms == 1 else -(-units // amount)
    return num_ticks * tick_ms / 1000


class Lows:
    """How far a bucket has drained since each of its reservations.

    An unused reservation drains like all other use: a bucket drains alike with or without a
    reservation, until it would have been empty without. So at most the lowest level since the
    reservation can be returned, and the returned part was missing from all levels since.

    Additions have rising numbers. The list has the levels just before additions, as far as no later
    level was as low: (number, level), both rising. Where nothing has drained since the former
    addition, the level is at least that addition, and needs no note. Where a level is taken for a
    lower one, less is returned, and never more.
    """

    __slots__ = ("_lows",)

    def __init__(self) -> None:
        self._lows: list[tuple[int, int]] = []

    def note(self, number: int, level: int) -> None:
        if not level:
            self._lows = [(number, 0)]
            return
        lows = self._lows
        while lows and lows[-1][1] >= level:
            lows.pop()
        if lows and level * _NEARLY[0] <= lows[-1][1] * _NEARLY[1]:
            level = lows.pop()[1]
        lows.append((number, level))

    def give_back(self, number: int, unused: int, used: int) -> int:
        """Return how much of an unused part of an addition is still there, when `used` of the
        bucket is used. This part counts as returned from then on."""
        lows = self._lows
        given = unused if unused < used else used
        first = len(lows)
        while first and lows[first - 1][0] > number:
            first -= 1
        if first < len(lows):
            given = min(given, lows[first][1])
            since = [(later, level - given) for later, level in lows[first:]]
            while first and lows[first - 1][1] >= since[0][1]:
                first -= 1
            lows[first:] = since
        return given


# -- Calendars ----------------------------------------------------------------------------------


def window_at(rule: Rule, at_ms: int) -> tuple[int, int]:
    """Return when the rule's day, week or month of a moment begins and ends. Raises ValueError for
    a rule of another kind."""
    zone = ZoneInfo(rule.time_zone)
    today = datetime.fromtimestamp(at_ms / 1000, zone).date()
    match rule.window:
        case Window.DAY:
            first, last = today, today + timedelta(days=1)
        case Window.WEEK:
            num_days = (today.weekday() - _WEEKDAYS[rule.week_start]) % 7
            first = today - timedelta(days=num_days)
            last = first + timedelta(days=7)
        case Window.MONTH:
            first = today.replace(day=1)
            last = (first + timedelta(days=31)).replace(day=1)
        case window:
            raise ValueError(f"the window {window} does not follow a calendar")
    return _midnight_ms(first, zone), _midnight_ms(last, zone)


def boundaries_at(rule: Rule, at_ms: int) -> Boundaries:
    """Return the boundaries of a rule's windows around a moment, for a server whose clock differs
    a little from ours. Raises ValueError as `window_at` does."""
    found = _cached.get(rule.calendar)
    if found is not None and found[1] <= at_ms < found[2]:
        return found
    start_ms, end_ms = window_at(rule, at_ms)
    before_ms, _ = window_at(rule, start_ms - 1)
    _, after_ms = window_at(rule, end_ms)
    found = _cached[rule.calendar] = before_ms, start_ms, end_ms, after_ms
    return found


def quota_window(rule: Rule, now_s: float) -> tuple[int, int | None]:
    """Return when the window of a quota began and when it ends. A total began at 0 and has no
    end."""
    if rule.kind is Kind.TOTAL:
        return 0, None
    _, start_ms, end_ms, _ = boundaries_at(rule, round(now_s * 1000))
    return start_ms, end_ms


def _midnight_ms(day: date, zone: ZoneInfo) -> int:
    # `fold` 0: of two midnights the first; of none, the moment at which clocks change.
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
