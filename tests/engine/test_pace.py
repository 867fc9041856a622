"""How fast the wait queue is served, by a clock that the test moves."""

import pytest

from vinery_serving.engine.pace import Pace


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
