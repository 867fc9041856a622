"""Stop strings, of which nothing leaks however the text is cut, and repetitions."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vinery_serving.core.request import Repetition
from vinery_serving.output.stop import RepetitionDetector, StopStrings

from .builders import cut

# Few letters, so that strings overlap with themselves and each other.
_texts = st.text("abc", max_size=30)
_stops = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)
_cuts = st.lists(st.integers(0, 30), max_size=8)


def through(stop: StopStrings, parts: list[str]) -> str:
    sent = "".join(stop.feed(part) for part in parts)
    return sent if stop.met is not None else sent + stop.release()


def naive(text: str, stops: list[str], *, include: bool) -> str:
    """Grow the text by one character at a time until it ends with a stop string."""
    for end in range(1, len(text) + 1):
        met = [stop for stop in stops if text[:end].endswith(stop)]
        if met:
            return text[:end] if include else text[: end - max(map(len, met))]
    return text


@given(_texts, _stops, _cuts, st.booleans())
def test_any_cut_gives_what_a_search_of_the_whole_text_gives(text, stops, cuts, include):
    stop = StopStrings(stops, include=include)

    sent = through(stop, cut(text, cuts))

    assert sent == naive(text, stops, include=include)
    assert (stop.met is not None) == any(string in text for string in stops)
    assert include or not any(string in sent for string in stops)


def test_it_holds_back_only_what_may_begin_a_stop_string_and_is_silent_after_one():
    stop = StopStrings(["\n\nUser:"])
    assert stop.feed("Hello.\n\n") == "Hello."
    assert stop.feed("Us") == ""
    assert stop.feed("ually") == "\n\nUsually"
    stop.feed("one\n\nUser:")
    assert stop.feed("two") == ""
    assert stop.release() == ""
    with pytest.raises(ValueError, match="empty"):
        StopStrings(["a", ""])


# -- Repetitions, found token by token, against their definition --------------

REPETITIONS = st.builds(
    lambda smallest, more, count: Repetition(smallest + more, smallest, count),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(2, 4),
)


def repeats(tokens: list[int], wanted: Repetition) -> bool:
    """Whether the tokens end with repetitions of a pattern."""
    for size in range(wanted.min_size, wanted.max_size + 1):
        whole = tokens[-size:] * wanted.min_count
        if len(tokens) >= len(whole) and tokens[-len(whole) :] == whole:
            return True
    return False


@given(st.lists(st.integers(0, 2), max_size=60), REPETITIONS)
@example([1] * 40, Repetition(3, 3, 4))
@example([1, 2, 1, 2, 1, 2, 2] * 3, Repetition(7, 7, 3))
def test_it_sees_every_repetition_and_nothing_else(tokens, wanted):
    detector = RepetitionDetector(wanted)

    for at, token in enumerate(tokens):
        assert detector.feed(token) == repeats(tokens[: at + 1], wanted)


def test_the_past_beyond_a_pattern_is_forgotten():
    detector = RepetitionDetector(Repetition(max_size=8, min_size=1, min_count=9999))

    for number in range(5000):
        assert not detector.feed(number % 3)

    assert sum(map(len, detector._positions.values())) <= 8 + 3
    assert len(detector._runs) <= 8
