"""What holds besides for every family that writes arguments as JSON: they are sent exactly as the
model wrote them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import table
from vinery_serving.core.events import ToolCallDelta
from vinery_serving.core.request import Tool

from .builders import Folded, a_parser, events_of, folded
from .families import JSON_WRITERS, JsonCall

PARIS: JsonCall = ("get_weather", '{"city": "Paris"}')
TOOLS = [Tool(name) for name in ("get_weather", "get_time", "ping", "f")]

ways = table("way", JSON_WRITERS)


def written(way: str, calls: Sequence[JsonCall]) -> str:
    return JSON_WRITERS[way][1](calls)


def read(way: str, text: str) -> Folded:
    return folded(a_parser(JSON_WRITERS[way][0], tools=TOOLS), [text])


@ways
def test_white_space_between_calls_is_not_an_answer_where_text_stood_before(way: str) -> None:
    call = written(way, [PARIS])

    assert read(way, f"First.\n{call}\n\n{call}\n") == [("text", "First.\n"), PARIS, PARIS]


@ways
def test_arguments_keep_the_exact_text_of_the_model(way: str) -> None:
    arguments = '{ "b":1.50,\n  "a" : [ true ,null ] }'

    assert read(way, written(way, [("f", arguments)])) == [("f", arguments)]


@ways
def test_arguments_are_sent_as_they_grow(way: str) -> None:
    arguments = json.dumps({"text": "word " * 20})
    parser = a_parser(JSON_WRITERS[way][0], tools=TOOLS)

    events = events_of(parser, list(written(way, [("f", arguments)])))

    grown = [event.text for event in events if isinstance(event, ToolCallDelta)]
    assert "".join(grown) == arguments
    # A key comes at once, and a quote with what follows it.
    assert len(grown) >= len(arguments) - len('"text":') - 1


@ways
def test_a_call_is_complete_though_its_end_is_missing(way: str) -> None:
    text = written(way, [PARIS])

    assert read(way, text[: text.index("}") + 1]) in ([PARIS], [("open get_weather", PARIS[1])])
    for end in range(text.index("}") + 2, len(text)):
        assert read(way, text[:end]) == [PARIS]


_strings = st.text('ab{}[]"\\;,<>/|: \n😀', max_size=8)
_objects = st.dictionaries(_strings, st.one_of(_strings, st.integers(), st.lists(_strings)))
_calls = st.lists(
    st.tuples(
        st.sampled_from([tool.name for tool in TOOLS]),
        st.builds(json.dumps, _objects, indent=st.sampled_from([None, 2])),
    ),
    min_size=1,
    max_size=3,
)


@ways
@settings(max_examples=examples(8))
@given(calls=_calls)
def test_all_well_formed_calls_come_back_exactly(way: str, calls: list[JsonCall]) -> None:
    assert read(way, written(way, calls)) == calls
