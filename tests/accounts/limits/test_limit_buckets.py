"""Bucket arithmetic: the numbers that OpenAI's API was seen to send follow from one formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.limits.buckets import MINUTE_MS, Lows, full_after_s, used_after, wait_s
from accounts.limits.wording import duration

MONTH_MS = 30 * 86_400_000


@pytest.mark.parametrize(
    ("limit", "remaining", "reset"),
    [
        (5_000, 4_999, "12ms"),
        (160_000, 159_976, "9ms"),
        (3_000, 2_999, "20ms"),
        (250_000, 249_989, "2ms"),
    ],
)
def test_resets_that_openai_was_seen_to_tell(limit: int, remaining: int, reset: str) -> None:
    full_after = full_after_s((limit - remaining) * MINUTE_MS, limit)

    assert full_after is not None
    assert duration(full_after) == reset


@pytest.mark.parametrize(
    ("limit", "used", "requested", "period_ms", "wait"),
    [
        (50_000, 47_949, 3_006, MINUTE_MS, "1.146s"),
        (30_000, 22_999, 12_528, MINUTE_MS, "11.054s"),
        (200_000, 195_869, 4_412, MINUTE_MS, "84ms"),
        (30_000, 14_567, 24_754, MINUTE_MS, "18.642s"),
        (30_000, 18_928, 11_159, MINUTE_MS, "174ms"),
        (100_000, 96_749, 19_126, MONTH_MS, "114h18m0s"),
    ],
)
def test_waits_that_openai_was_seen_to_tell(
    limit: int, used: int, requested: int, period_ms: int, wait: str
) -> None:
    told = wait_s(used * period_ms, requested * period_ms, limit, period_ms)

    assert told is not None
    assert duration(told) == wait


def test_what_can_never_fit_has_no_wait() -> None:
    assert wait_s(0, 101 * MINUTE_MS, 100) is None
    assert wait_s(0, 100 * MINUTE_MS, 100) == 0.0


def test_a_bucket_that_never_refills_has_no_reset() -> None:
    assert full_after_s(1, 0) is None
    assert full_after_s(0, 0) == 0.0


@given(
    used=st.integers(0, 10**13),
    amount=st.integers(0, 10**6),
    times_ms=st.lists(st.integers(0, 10_000)),
)
def test_looking_often_refills_no_more_and_no_less(
    used: int, amount: int, times_ms: list[int]
) -> None:
    step_by_step = used
    for time_ms in times_ms:
        step_by_step = used_after(step_by_step, amount, time_ms)

    assert step_by_step == used_after(used, amount, sum(times_ms))


def test_a_clock_that_was_set_back_refills_nothing() -> None:
    assert used_after(500, 60, -1_000) == 500


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
    """What was not used is as good as never taken; no less is used than if it had not been."""
    taken: list[tuple[int, int]] = []  # at what time, and how much in the end
    open_: list[int] = []
    lows = Lows()
    now_ms = used = 0
    has_drained = True
    for elapsed_ms, move in moves:
        now_ms += elapsed_ms
        used = used_after(used, 1, elapsed_ms)
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
    """Of a bucket that refills one in a millisecond, from the beginning."""
    used, then_ms = 0, 0
    for at_ms, cost in taken:
        used = used_after(used, 1, at_ms - then_ms) + cost
        then_ms = at_ms
    return used_after(used, 1, now_ms - then_ms)


def test_a_bucket_gets_back_nearly_all_that_is_there_of_it() -> None:
    """Of many that nobody has used, the first ones first, which is the worst order."""
    lows, used = Lows(), 0
    for number in range(100):
        lows.note(number, used)
        used += 60  # and next to nothing drains

    for number in range(100):
        used -= lows.give_back(number, 60, used)

    assert used <= 100 * 60 / 9
