"""Stop strings: nothing of them leaks, and the cuts of the text do not matter."""

from hypothesis import given
from hypothesis import strategies as st

from serving.output.stop import StopStrings

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


@given(_texts, _stops, _cuts)
def test_no_stop_string_is_ever_sent(text, stops, cuts):
    sent = through(StopStrings(stops), cut(text, cuts))

    assert not any(string in sent for string in stops)


def test_it_holds_back_only_what_may_begin_a_stop_string():
    stop = StopStrings(["\n\nUser:"])

    assert stop.feed("Hello.\n\n") == "Hello."
    assert stop.feed("Us") == ""
    assert stop.feed("ually") == "\n\nUsually"


def test_it_is_silent_after_the_end():
    stop = StopStrings(["END"])
    stop.feed("one END")

    assert stop.feed("two") == ""
    assert stop.release() == ""
