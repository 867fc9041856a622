"""The existing roll-ups of a period cover each second once."""

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_accounts.usage import periods
from vinery_accounts.usage.periods import Granularity, Kept, TooManyPoints
from vinery_accounts.usage.rollups import DAY_S, HOUR_S

ALL_KEPT = Kept(-(10**11), -(10**11))
moments = st.datetimes(
    datetime(2025, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC), allow_imaginary=False
)
ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe"]


@given(
    moments,
    st.timedeltas(timedelta(seconds=1), timedelta(days=60)),
    st.sampled_from(Granularity),
    st.sampled_from(ZONES),
    moments,
    moments,
)
def test_existing_roll_ups_cover_every_second_once(
    since: datetime,
    length: timedelta,
    granularity: Granularity,
    zone: str,
    minutes_since: datetime,
    hours_since: datetime,
) -> None:
    kept = Kept(
        periods.round_down(int(minutes_since.timestamp()), DAY_S),
        periods.round_down(int(hours_since.timestamp()), DAY_S),
    )
    until = since + length
    try:
        borders = periods.borders(since, until, granularity, ZoneInfo(zone), kept)
    except TooManyPoints:
        return

    assert borders == sorted(set(borders))
    assert borders[0] <= since.timestamp()
    assert borders[-1] >= until.timestamp()
    sums = [Counter[int]() for _ in itertools.pairwise(borders)]
    for reading in periods.readings(borders):
        for start_s in itertools.chain(*reading.parts):
            assert start_s % reading.unit_s == 0
            if reading.unit_s < DAY_S:
                assert start_s >= kept.hours_since_s
            if reading.unit_s < HOUR_S:
                assert start_s >= kept.minutes_since_s
            bin_ = (start_s - reading.start_s) // reading.bin_s
            for point, sign in reading.targets(bin_):
                sums[point][start_s] += sign
                sums[point][start_s + reading.unit_s] -= sign
    # The sums that remain are the begin and the end of the point.
    for found, (begin_s, end_s) in zip(sums, itertools.pairwise(borders), strict=True):
        assert {at_s: num for at_s, num in found.items() if num} == {begin_s: 1, end_s: -1}


@table(
    "zone, hours, sign",
    [
        ("Europe/Berlin", 2, 1),  # before midnight in UTC, so these hours are added to the next day
        ("America/New_York", 4, -1),
    ],
)
def test_days_of_other_zones_are_read_from_days_and_hours(zone: str, hours: int, sign: int) -> None:
    since = datetime(2026, 7, 1, tzinfo=ZoneInfo(zone))
    until = since + timedelta(days=30)
    borders = periods.borders(since, until, Granularity.DAY, ZoneInfo(zone), ALL_KEPT)

    of_hours, of_days = periods.readings(borders)

    assert (of_hours.unit_s, of_days.unit_s) == (HOUR_S, DAY_S)
    assert sum(map(len, of_hours.parts)) == 31 * hours
    assert [len(part) for part in of_days.parts] == [30]
    assert dict(of_hours.targets(7)) == {7: sign, 6: -sign}
