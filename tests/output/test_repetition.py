"""Repetitions, found token by token, against what they are by definition."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from vinery_serving.core.request import Repetition
from vinery_serving.output.stop import RepetitionDetector

REPETITIONS = st.builds(
    lambda smallest, more, count: Repetition(smallest + more, smallest, count),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(2, 4),
)


def repeats(tokens: list[int], wanted: Repetition) -> bool:
    """Whether some pattern, written down so many times, is what the tokens end with."""
    for size in range(wanted.min_size, wanted.max_size + 1):
        whole = tokens[-size:] * wanted.min_count
        if len(tokens) >= len(whole) and tokens[-len(whole) :] == whole:
            return True
    return False


@given(st.lists(st.integers(0, 2), max_size=60), REPETITIONS)
@example([1] * 40, Repetition(3, 3, 4))
@example([1, 2, 1, 2, 1, 2, 2] * 3, Repetition(7, 7, 3))
def test_it_sees_every_repetition_and_nothing_else(tokens: list[int], wanted: Repetition) -> None:
    detector = RepetitionDetector(wanted)

    for at, token in enumerate(tokens):
        assert detector.feed(token) == repeats(tokens[: at + 1], wanted)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(2, 5))
def test_a_pattern_written_so_often_is_one(pattern: list[int], count: int) -> None:
    detector = RepetitionDetector(Repetition(len(pattern), 1, count))

    assert [detector.feed(token) for token in pattern * count][-1]


def test_the_past_beyond_a_pattern_is_forgotten() -> None:
    detector = RepetitionDetector(Repetition(max_size=8, min_size=1, min_count=9999))

    for number in range(5000):
        assert not detector.feed(number % 3)

    assert sum(map(len, detector._positions.values())) <= 8 + 3
    assert len(detector._runs) <= 8
