"""Days, weeks and months begin at midnight, wherever a rule lives and whatever clocks do there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.limits.calendar import boundaries_at, window_at
from accounts.limits.rules import Rule, Weekday, Window
from tests.accounts.limits.builders import rule

HOUR_MS = 3_600_000
WEEKDAYS = list(Weekday)
zones = st.sampled_from(sorted(available_timezones()))
moments_ms = st.datetimes(datetime(1985, 1, 2), datetime(2037, 11, 30)).map(
    lambda moment: int(moment.replace(tzinfo=UTC).timestamp() * 1000)
)
calendars = st.builds(
    lambda window, zone, day: rule(window=window, time_zone=zone, week_start=day),
    st.sampled_from([Window.DAY, Window.WEEK, Window.MONTH]),
    zones,
    st.sampled_from(WEEKDAYS),
)


def ms(*fields: int, zone: str) -> int:
    return int(datetime(*fields, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("zone", "day", "num_hours"),
    [
        ("Europe/Berlin", (2026, 3, 28), 24),
        ("Europe/Berlin", (2026, 3, 29), 23),
        ("Europe/Berlin", (2026, 10, 25), 25),
        ("America/New_York", (2026, 3, 8), 23),
        ("America/New_York", (2026, 11, 1), 25),
        # Half an hour, on an island.
        ("Australia/Lord_Howe", (2026, 4, 5), 24.5),
        # Clocks change at midnight: 00:00 is left out here,
        ("America/Santiago", (2026, 9, 6), 23),
        # comes twice here,
        ("America/Havana", (2026, 11, 1), 25),
        # and this day was left out as a whole when the date line was moved.
        ("Pacific/Apia", (2011, 12, 29), 24),
        ("Asia/Kolkata", (2026, 6, 1), 24),
    ],
)
def test_days_are_as_long_as_people_live_them(
    zone: str, day: tuple[int, int, int], num_hours: float
) -> None:
    start_ms, end_ms = window_at(rule(time_zone=zone), ms(*day, 12, zone=zone))

    assert end_ms - start_ms == num_hours * HOUR_MS


@pytest.mark.parametrize(
    ("month", "num_hours"),
    [
        ((2026, 1), 31 * 24),
        ((2026, 2), 28 * 24),
        ((2028, 2), 29 * 24),
        ((2026, 3), 31 * 24 - 1),
        ((2026, 4), 30 * 24),
        ((2026, 10), 31 * 24 + 1),
        ((2026, 12), 31 * 24),
    ],
)
def test_months_are_as_long_as_they_are(month: tuple[int, int], num_hours: int) -> None:
    first_ms = ms(*month, 1, zone="Europe/Berlin")

    for at_ms in (first_ms, first_ms + 20 * 24 * HOUR_MS, first_ms + num_hours * HOUR_MS - 1):
        start_ms, end_ms = window_at(berlins(Window.MONTH), at_ms)
        assert (start_ms, end_ms) == (first_ms, first_ms + num_hours * HOUR_MS)


@pytest.mark.parametrize(
    ("week_start", "first", "num_hours"),
    [
        # A Sunday of the week, on which clocks are put forward or back.
        (Weekday.MONDAY, (2026, 3, 23), 7 * 24 - 1),
        (Weekday.SUNDAY, (2026, 3, 29), 7 * 24 - 1),
        (Weekday.SATURDAY, (2026, 3, 28), 7 * 24 - 1),
        (Weekday.MONDAY, (2026, 3, 30), 7 * 24),
        (Weekday.MONDAY, (2026, 10, 19), 7 * 24 + 1),
        (Weekday.SUNDAY, (2026, 10, 25), 7 * 24 + 1),
        (Weekday.THURSDAY, (2026, 10, 22), 7 * 24 + 1),
        # Across a new year, and a 29 February.
        (Weekday.MONDAY, (2026, 12, 28), 7 * 24),
        (Weekday.SUNDAY, (2028, 2, 27), 7 * 24),
    ],
)
def test_a_week_is_seven_days_from_its_first_whatever_clocks_do(
    week_start: Weekday, first: tuple[int, int, int], num_hours: int
) -> None:
    week = berlins(Window.WEEK, week_start)
    first_ms = ms(*first, zone="Europe/Berlin")

    for at_ms in (first_ms, first_ms + 100 * HOUR_MS, first_ms + num_hours * HOUR_MS - 1):
        assert window_at(week, at_ms) == (first_ms, first_ms + num_hours * HOUR_MS)


@given(zones, st.sampled_from(WEEKDAYS), moments_ms)
def test_a_week_is_made_of_seven_days(zone: str, week_start: Weekday, at_ms: int) -> None:
    week, day = (
        rule(window=window, time_zone=zone, week_start=week_start)
        for window in (Window.WEEK, Window.DAY)
    )
    start_ms, end_ms = window_at(week, at_ms)
    place = ZoneInfo(zone)

    days = []
    while start_ms < end_ms:
        days.append(datetime.fromtimestamp(start_ms / 1000, place).date())
        start_ms = window_at(day, start_ms)[1]

    assert start_ms == end_ms
    number = WEEKDAYS.index(week_start)
    in_order = WEEKDAYS[number:] + WEEKDAYS[:number]
    names = [WEEKDAYS[each.weekday()] for each in days]
    # Islands that changed sides of the date line went without one of them, once.
    assert names == [each for each in in_order if each in names]
    assert len(names) >= 6


@given(calendars, moments_ms)
def test_a_window_holds_its_moment_and_has_neighbours_without_gaps(
    window: Rule, at_ms: int
) -> None:
    before_ms, start_ms, end_ms, after_ms = boundaries_at(window, at_ms)

    assert before_ms < start_ms <= at_ms < end_ms < after_ms
    assert window_at(window, start_ms) == (start_ms, end_ms)
    assert window_at(window, end_ms - 1) == (start_ms, end_ms)
    assert window_at(window, start_ms - 1) == (before_ms, start_ms)
    assert window_at(window, end_ms) == (end_ms, after_ms)


@given(zones, moments_ms)
def test_a_day_has_one_date(zone: str, at_ms: int) -> None:
    start_ms, end_ms = window_at(rule(time_zone=zone), at_ms)
    place = ZoneInfo(zone)

    def date_at(moment_ms: int) -> object:
        return datetime.fromtimestamp(moment_ms / 1000, place).date()

    assert date_at(at_ms) == date_at(start_ms) == date_at(end_ms - 1)
    assert date_at(end_ms) > date_at(at_ms)  # type: ignore[operator]


def test_a_minute_is_not_of_the_calendar() -> None:
    with pytest.raises(ValueError, match="minute"):
        window_at(rule(window=Window.MINUTE), 0)


def test_boundaries_follow_the_day() -> None:
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    days = [
        boundaries_at(rule(), int((noon + timedelta(days=n)).timestamp() * 1000)) for n in (0, 1, 0)
    ]

    assert days[0] == days[2]
    assert days[0][2] == days[1][1]


def test_boundaries_are_those_of_the_rules_own_first_day() -> None:
    at_ms = ms(2026, 6, 4, zone="Europe/Berlin")  # a Thursday

    starts = [boundaries_at(berlins(Window.WEEK, day), at_ms)[1] for day in WEEKDAYS]

    berlin = ZoneInfo("Europe/Berlin")
    days = [datetime.fromtimestamp(start_ms / 1000, berlin).day for start_ms in starts]
    assert days == [1, 2, 3, 4, 29, 30, 31]


def berlins(window: Window, week_start: Weekday = Weekday.MONDAY) -> Rule:
    return rule(window=window, time_zone="Europe/Berlin", week_start=week_start)
