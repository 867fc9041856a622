"""Days, weeks and months where people live: when a quota starts anew.

A day is from one midnight to the next, so it has 23 or 25 hours when clocks change, and a week
of seven such days has an hour less or more. Where midnight itself is left out, the day begins
with the change; where it comes twice, with the first. Times are Unix times in milliseconds.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from accounts.limits.rules import Rule, Weekday, Window

# The starts of the last, this and the next window, and the end of the next.
Boundaries = tuple[int, int, int, int]

_WEEKDAYS = {day: number for number, day in enumerate(Weekday)}  # as `date.weekday`

_known: dict[tuple[str, str, str], Boundaries] = {}


def window_at(rule: Rule, at_ms: int) -> tuple[int, int]:
    """When the rule's day, week or month of a moment begins and ends. Raises ValueError for
    rules that are not of the calendar."""
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
            raise ValueError(f"a {window} is not of the calendar")
    return _midnight_ms(first, zone), _midnight_ms(last, zone)


def boundaries_at(rule: Rule, at_ms: int) -> Boundaries:
    """The same with the neighbours, for somebody whose clock differs a little from ours."""
    known = _known.get(rule.period)
    if known is not None and known[1] <= at_ms < known[2]:
        return known
    start_ms, end_ms = window_at(rule, at_ms)
    before_ms, _ = window_at(rule, start_ms - 1)
    _, after_ms = window_at(rule, end_ms)
    known = _known[rule.period] = before_ms, start_ms, end_ms, after_ms
    return known


def _midnight_ms(day: date, zone: ZoneInfo) -> int:
    # `fold` 0: of two midnights the first; of none, the moment at which clocks change.
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
