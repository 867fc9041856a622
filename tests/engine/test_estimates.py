"""The engine's estimates: how long a step may take, how much of a prompt must be computed, and how
fast the wait queue is served, by a clock that the test moves.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.engine.in_process import generation
from tests.tables import table
from vinery_serving.engine.estimates import LEAST_S, CachedParts, Pace, QueueLimit, StepLimits
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.transport.messages import Submit

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


def admit(pace: Pace, start: float, for_s: float, tokens_per_s: float, is_full=True) -> float:
    """Admit evenly for a while, in steps of 10 ms. Returns the time of the end."""
    for at in range(round(for_s * 100)):
        pace.note(start + at / 100, num_tokens=tokens_per_s / 100, is_waiting=True, is_full=is_full)
    return start + for_s


def full_pace(pace: Pace) -> float:
    return pace.tokens_per_s(64)


def test_the_pace_is_that_of_the_newest_seconds_in_which_something_has_waited() -> None:
    pace = Pace()
    assert full_pace(pace) == 0
    admit(pace, 0.0, 0.1, 500)
    assert full_pace(pace) == 0

    admit(pace, 0.1, 0.2, 500)

    assert full_pace(pace) == pytest.approx(500, rel=0.1)

    pace = Pace()
    now = admit(pace, 0.0, 20.0, 5000)
    admit(pace, now, 10.0, 100)
    assert full_pace(pace) == pytest.approx(100, rel=0.5)

    pace = Pace()
    now = admit(pace, 0.0, 2.0, 500)
    pace.note(now, num_tokens=5.0, is_waiting=False, is_full=True)
    pace.note(now + 3600, num_tokens=500.0, is_waiting=False, is_full=True)
    assert full_pace(pace) == pytest.approx(500, rel=0.1)


def test_free_slots_have_a_pace_of_their_own_and_means_make_room_until_it_is_known() -> None:
    pace = Pace()
    now = admit(pace, 0.0, 2.0, 9000, is_full=False)
    assert pace.tokens_per_s(1) == pytest.approx(9000, rel=0.1)
    admit(pace, now, 2.0, 300, is_full=True)
    assert full_pace(pace) == pytest.approx(300, rel=0.3)

    pace = Pace()
    for _ in range(100):
        pace.note_cost(100.0)
        pace.note_answer(2.0)
    pace.note_cost(10_000.0)

    assert 100 < pace.mean_cost < 1000
    assert pace.mean_answer_s == pytest.approx(2.0)

    pace = Pace()
    pace.note_cost(100.0)
    pace.note_answer(10.0)
    assert pace.tokens_per_s(63) == 0
    pace.note(0.0, num_tokens=100, is_waiting=True, is_full=True)
    assert full_pace(pace) == pytest.approx(64 * 100 / 10)
    assert pace.tokens_per_s(0) == pytest.approx(100 / 10), "the next answer has not begun"

    now = admit(pace, 0.0, 1.0, 10)
    admit(pace, now, 600.0, 0)  # a long answer in the only slot does not stop the estimate
    assert pace.tokens_per_s(1) == pytest.approx(0.25 * 100 / 10)


def of(lane: Lane, number: int, max_queue_s: float = 10.0) -> Submit:
    return structs.replace(generation([number]).submit, lane=lane, max_queue_s=max_queue_s)


def test_a_request_waits_unless_its_wait_would_be_longer_than_it_may_be():
    limit = QueueLimit()
    for max_queue_s, wait_s, expected in (
        (0, 1e6, None),
        (10, 10, None),
        (10, 12.5, 3),
        (10, 5, None),
    ):
        assert limit.check(of(ALICE, 1, max_queue_s), wait_s, 0.1, 0.0) == expected


def test_each_refused_client_of_a_lane_has_a_later_time_and_is_admitted_then():
    limit = QueueLimit()
    requests = [of(ALICE, number) for number in range(3)]
    assert [limit.check(each, 15, 2.0, 100.0) for each in requests] == [5, 7, 9]
    assert limit.check(of(BOB, 1), 15, 2.0, 100.0) == 5

    assert limit.check(requests[0], 15, 2.0, 102.0) == 9, "it is too early, like a new one"
    assert limit.check(requests[0], 15, 2.0, 105.0) is None
    assert limit.check(requests[0], 15, 2.0, 105.0) == 8, "behind the others"
    assert limit.check(requests[0], 15, 2.0, 111.0) is None


def test_no_number_of_refused_requests_is_remembered():
    limit = QueueLimit()
    for number in range(10_000):
        limit.check(of((number, number), number), 15, 1.0, 0.0)
    assert len(limit._due_at) == len(limit._last_due_at) == 4096
