"""Days and months begin at midnight, wherever a rule lives and whatever the clocks do there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.limits.calendar import boundaries_at, window_at
from accounts.limits.rules import Window

HOUR_MS = 3_600_000
calendar_windows = st.sampled_from([Window.DAY, Window.MONTH])
zones = st.sampled_from(sorted(available_timezones()))
moments_ms = st.datetimes(datetime(1985, 1, 2), datetime(2037, 11, 30)).map(
    lambda moment: int(moment.replace(tzinfo=UTC).timestamp() * 1000)
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
    start_ms, end_ms = window_at(Window.DAY, zone, ms(*day, 12, zone=zone))

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
        start_ms, end_ms = window_at(Window.MONTH, "Europe/Berlin", at_ms)
        assert (start_ms, end_ms) == (first_ms, first_ms + num_hours * HOUR_MS)


@given(calendar_windows, zones, moments_ms)
def test_a_window_holds_its_moment_and_has_neighbours_without_gaps(
    window: Window, zone: str, at_ms: int
) -> None:
    before_ms, start_ms, end_ms, after_ms = boundaries_at(window, zone, at_ms)

    assert before_ms < start_ms <= at_ms < end_ms < after_ms
    assert window_at(window, zone, start_ms) == (start_ms, end_ms)
    assert window_at(window, zone, end_ms - 1) == (start_ms, end_ms)
    assert window_at(window, zone, start_ms - 1) == (before_ms, start_ms)
    assert window_at(window, zone, end_ms) == (end_ms, after_ms)


@given(zones, moments_ms)
def test_a_day_has_one_date(zone: str, at_ms: int) -> None:
    start_ms, end_ms = window_at(Window.DAY, zone, at_ms)
    place = ZoneInfo(zone)

    def date_at(moment_ms: int) -> object:
        return datetime.fromtimestamp(moment_ms / 1000, place).date()

    assert date_at(at_ms) == date_at(start_ms) == date_at(end_ms - 1)
    assert date_at(end_ms) > date_at(at_ms)  # type: ignore[operator]


def test_a_minute_is_not_of_the_calendar() -> None:
    with pytest.raises(ValueError, match="minute"):
        window_at(Window.MINUTE, "UTC", 0)


def test_boundaries_follow_the_day() -> None:
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    days = [
        boundaries_at(Window.DAY, "UTC", int((noon + timedelta(days=n)).timestamp() * 1000))
        for n in (0, 1, 0)
    ]

    assert days[0] == days[2]
    assert days[0][2] == days[1][1]
