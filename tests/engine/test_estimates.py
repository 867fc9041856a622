"""The engine's estimates: how long a step may take, how much of a prompt must be computed, and how
long a request waits.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.engine.estimates import LEAST_S, AnswerTimes, CachedParts, StepLimits

CEILING_S = 120.0


@table(
    "steps, num_tokens, expected_s",
    [
        ([], 1, CEILING_S),  # only the option limits
        ([(1, 0.003)] * 3, 1, LEAST_S),
        ([(200, 0.4), (200, 1.0), (200, 0.6)], 200, 20.0),  # twenty times as long as the slowest
        ([(1, 0.05)] * 3, 64, 20 * 0.05 * 64),  # a new size is judged by a smaller one
        ([(1, 0.001)] * 3, 2, 30.0),  # and has time to compile its kernels
        ([(1, 5.0), *[(1, 0.003)] * 5000], 1, LEAST_S),  # one slow step is forgotten
    ],
)
def test_a_step_may_take_many_times_what_others_took(steps, num_tokens, expected_s):
    limits = StepLimits(CEILING_S)
    for size, took_s in steps:
        limits.note(size, took_s)
    assert limits.limit_s(num_tokens) == pytest.approx(expected_s, rel=0.01)


@given(
    st.lists(st.tuples(st.integers(1, 4096), st.floats(0.0, 300.0)), max_size=50),
    st.integers(1, 4096),
)
def test_no_limit_is_above_the_option_or_below_the_smallest(steps, num_tokens):
    limits = StepLimits(CEILING_S)
    for size, took_s in steps:
        limits.note(size, took_s)
    assert LEAST_S <= limits.limit_s(num_tokens) <= CEILING_S


ALICE, BOB = (1, 1), (2, 2)


def test_each_lane_has_an_estimate_of_its_own_and_any_number_takes_bounded_memory() -> None:
    parts = CachedParts()
    for _ in range(100):
        parts.note(ALICE, num_cached=29, num_tokens=30)

    assert parts.uncached(ALICE) == 1 / 8
    assert parts.uncached(BOB) == 1.0
    parts.note(ALICE, num_cached=0, num_tokens=30)
    assert parts.uncached(ALICE) == pytest.approx(0.2, abs=0.05)

    parts = CachedParts()
    for number in range(3000):
        parts.note((number, number), num_cached=1, num_tokens=2)
    assert len(parts._uncached) == 1024
    assert parts.uncached((2999, 2999)) == pytest.approx(0.9)


def test_a_wait_follows_from_the_times_of_answers_and_their_number() -> None:
    times = AnswerTimes()
    assert times.wait_s(100, 1) == 0, "nothing is known yet"
    for _ in range(100):
        times.note(2.0)
    assert times.wait_s(64, 32) == pytest.approx(4.0)
    assert times.wait_s(1, 0) == pytest.approx(2.0), "the next answer has not begun"
    times.note(1000.0)
    assert 2.0 < times.wait_s(1, 1) < 60
