"""Refills of buckets, and the beginning of days, weeks and months."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import given
from hypothesis import strategies as st

from tests.accounts.limits.builders import rule
from tests.tables import table
from vinery_accounts.limits.responses import duration
from vinery_accounts.limits.rules import SCALE, Rule, Weekday, Window
from vinery_accounts.limits.windows import Lows, boundaries_at, refill_s, used_after, window_at

HOUR_MS = 3_600_000
MONTH_TICK_MS = 30 * 24 * HOUR_MS // SCALE


# -- Buckets: one formula explains the numbers that OpenAI's API sends --------------------------


@table(
    "limit, missing, tick_ms, words",
    [
        # Of a reset: the limit without the rest.
        (5_000, 5_000 - 4_999, 1, "12ms"),
        (160_000, 160_000 - 159_976, 1, "9ms"),
        (3_000, 3_000 - 2_999, 1, "20ms"),
        (250_000, 250_000 - 249_989, 1, "2ms"),
        # Of a wait: the used and requested tokens, without the limit.
        (50_000, 47_949 + 3_006 - 50_000, 1, "1.146s"),
        (30_000, 22_999 + 12_528 - 30_000, 1, "11.054s"),
        (200_000, 195_869 + 4_412 - 200_000, 1, "84ms"),
        (30_000, 14_567 + 24_754 - 30_000, 1, "18.642s"),
        (30_000, 18_928 + 11_159 - 30_000, 1, "174ms"),
        (100_000, 96_749 + 19_126 - 100_000, MONTH_TICK_MS, "114h18m0s"),
    ],
)
def test_resets_and_waits_are_openai_s(limit: int, missing: int, tick_ms: int, words: str) -> None:
    assert duration(refill_s(missing * SCALE, limit, tick_ms) or 0.0) == words


def test_a_bucket_gets_back_nearly_all_that_is_there_and_nothing_of_nothing() -> None:
    assert refill_s(1, 0) is None
    assert refill_s(0, 0) == 0.0
    assert used_after(500, 60, 1_000, 0) == 500

    # All additions are unused, and return in the order of arrival: the worst order.
    lows, used = Lows(), 0
    for number in range(100):
        lows.note(number, used)
        used += 60  # and next to nothing drains
    for number in range(100):
        used -= lows.give_back(number, 60, used)
    assert used <= 100 * 60 / 9


@given(
    used=st.integers(0, 10**13),
    amount=st.integers(0, 10**6),
    tick_ms=st.sampled_from([1, 60]),
    start_ms=st.integers(0, 10_000),
    times_ms=st.lists(st.integers(0, 10_000)),
)
def test_a_bucket_that_is_read_often_refills_as_much_as_one_that_is_not(
    used: int, amount: int, tick_ms: int, start_ms: int, times_ms: list[int]
) -> None:
    step_by_step, now_ms = used, start_ms
    for time_ms in times_ms:
        before_ms, now_ms = now_ms, now_ms + time_ms
        step_by_step = used_after(step_by_step, amount, before_ms, now_ms, tick_ms)

    assert step_by_step == used_after(used, amount, start_ms, now_ms, tick_ms)


# The time that passes, and then an addition, or how much of which was not used.
moves = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.one_of(st.integers(1, 60), st.tuples(st.integers(0, 30), st.floats(0, 1))),
    ),
    max_size=40,
)


@given(moves)
def test_a_bucket_never_gets_back_more_than_is_there_of_it(
    moves: list[tuple[int, int | tuple[int, float]]],
) -> None:
    """The unused part is as good as never taken: no less is used than without it."""
    taken: list[tuple[int, int]] = []  # at what time, and how much in the end
    open_: list[int] = []
    lows = Lows()
    now_ms = used = 0
    has_drained = True
    for elapsed_ms, move in moves:
        now_ms += elapsed_ms
        used = used_after(used, 1, 0, elapsed_ms)
        has_drained = has_drained or elapsed_ms > 0
        if isinstance(move, int):
            if has_drained:
                lows.note(len(taken), used)
                has_drained = False
            open_.append(len(taken))
            taken.append((now_ms, move))
            used += move
        elif open_:
            number = open_.pop(move[0] % len(open_))
            at_ms, cost = taken[number]
            unused = int(cost * move[1])
            taken[number] = at_ms, cost - unused
            used -= lows.give_back(number, unused, used)
        assert used >= used_at(now_ms, taken)


def used_at(now_ms: int, taken: list[tuple[int, int]]) -> int:
    """The use of a bucket that refills one in a millisecond, from the beginning."""
    used, then_ms = 0, 0
    for at_ms, cost in taken:
        used = used_after(used, 1, then_ms, at_ms) + cost
        then_ms = at_ms
    return used_after(used, 1, then_ms, now_ms)


# -- Calendars ----------------------------------------------------------------------------------

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


def berlins(window: Window, week_start: Weekday = Weekday.MONDAY) -> Rule:
    return rule(window=window, time_zone="Europe/Berlin", week_start=week_start)


@table(
    "window, first, num_hours",
    [
        (berlins(Window.DAY), (2026, 3, 28), 24),
        (berlins(Window.DAY), (2026, 3, 29), 23),
        (berlins(Window.DAY), (2026, 10, 25), 25),
        # Half an hour, on an island.
        (rule(time_zone="Australia/Lord_Howe"), (2026, 4, 5), 24.5),
        # Clocks change at midnight: 00:00 is left out here,
        (rule(time_zone="America/Santiago"), (2026, 9, 6), 23),
        # comes twice here,
        (rule(time_zone="America/Havana"), (2026, 11, 1), 25),
        # and this day was left out as a whole when the date line was moved.
        (rule(time_zone="Pacific/Apia"), (2011, 12, 29), 24),
        (rule(time_zone="Asia/Kolkata"), (2026, 6, 1), 24),
        (berlins(Window.MONTH), (2028, 2, 1), 29 * 24),
        (berlins(Window.MONTH), (2026, 3, 1), 31 * 24 - 1),
        (berlins(Window.MONTH), (2026, 10, 1), 31 * 24 + 1),
        # A Sunday of the week, on which clocks are put forward or back.
        (berlins(Window.WEEK, Weekday.MONDAY), (2026, 3, 23), 7 * 24 - 1),
        (berlins(Window.WEEK, Weekday.SUNDAY), (2026, 3, 29), 7 * 24 - 1),
        (berlins(Window.WEEK, Weekday.THURSDAY), (2026, 10, 22), 7 * 24 + 1),
        # Across a new year, and a 29 February.
        (berlins(Window.WEEK, Weekday.MONDAY), (2026, 12, 28), 7 * 24),
        (berlins(Window.WEEK, Weekday.SUNDAY), (2028, 2, 27), 7 * 24),
    ],
)
def test_windows_are_as_long_as_people_live_them_whatever_clocks_do(
    window: Rule, first: tuple[int, int, int], num_hours: float
) -> None:
    start_ms = ms(*first, zone=window.time_zone)
    end_ms = start_ms + round(num_hours * HOUR_MS)

    for at_ms in (start_ms, (start_ms + end_ms) // 2, end_ms - 1):
        assert window_at(window, at_ms) == (start_ms, end_ms)


@given(zones, st.sampled_from(WEEKDAYS), moments_ms)
def test_a_week_is_made_of_seven_days(zone: str, week_start: Weekday, at_ms: int) -> None:
    day = rule(time_zone=zone)
    week = rule(window=Window.WEEK, time_zone=zone, week_start=week_start)
    start_ms, end_ms = window_at(week, at_ms)
    slot = ZoneInfo(zone)

    days = []
    while start_ms < end_ms:
        days.append(datetime.fromtimestamp(start_ms / 1000, slot).date())
        start_ms = window_at(day, start_ms)[1]

    assert start_ms == end_ms
    number = WEEKDAYS.index(week_start)
    in_order = WEEKDAYS[number:] + WEEKDAYS[:number]
    names = [WEEKDAYS[each.weekday()] for each in days]
    # Islands that changed sides of the date line went without a day, once.
    assert names == [each for each in in_order if each in names]
    assert len(names) >= 6


@given(calendars, moments_ms)
def test_a_window_holds_its_moment_and_has_close_neighbours(window: Rule, at_ms: int) -> None:
    before_ms, start_ms, end_ms, after_ms = boundaries_at(window, at_ms)

    assert before_ms < start_ms <= at_ms < end_ms < after_ms
    assert window_at(window, start_ms) == (start_ms, end_ms)
    assert window_at(window, end_ms - 1) == (start_ms, end_ms)
    assert window_at(window, start_ms - 1) == (before_ms, start_ms)
    assert window_at(window, end_ms) == (end_ms, after_ms)
