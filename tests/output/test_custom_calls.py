"""Calls of custom tools: the text that they are given, without the escapes of arguments."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import table
from vinery_serving.core.events import ToolCallDelta
from vinery_serving.core.tools import custom_arguments, custom_tool

from . import families
from .builders import WEATHER, Folded, a_parser, cut, folded
from .families import JSON_WRITERS, WRITERS, ways

RUN = custom_tool("run", "Run code", None)
TOOLS = (RUN, WEATHER)


def read(family: str, parts: list[str]) -> Folded:
    return folded(a_parser(family, tools=TOOLS), parts)


def hermes(arguments: str) -> str:
    return families.hermes([("run", arguments)])


# Letters of one to four bytes, and signs that break escapers, tags and brackets. A string of Gemma
# cannot contain Gemma's quote, nor a CDATA section its end.
TEXTS = st.text("aé中🍇 \"'\\/u\n\t\r\x00{}[]()<>|,:=`", max_size=30).filter(
    lambda text: '<|"|>' not in text and "]]>" not in text
)


@ways
@settings(max_examples=examples(10))
@given(text=TEXTS, is_ascii=st.booleans(), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_any_cut_gives_the_text(way, text, is_ascii, cuts):
    name, _ = WRITERS[way]
    output = families.written(way, [("run", {"input": text})])
    if is_ascii and way in JSON_WRITERS:
        output = JSON_WRITERS[way][1]([("run", json.dumps({"input": text}))])

    expected = [("custom run", text)]
    assert read(name, [output]) == expected
    assert read(name, list(output)) == expected
    assert read(name, cut(output, cuts)) == expected


@table(
    "arguments, text",
    [
        ('{"input": "a\\nb"}', "a\nb"),
        ('{"mood": {"input": "no"}, "input": "a", "more": "b"}', "a"),
        ('{"in\\u0070ut": "a"}', "a"),
        ('{"input": "\\q\\n\\u12"}', "\\q\n\\u12"),
        # A value that is no text is sent as JSON.
        ('{"input": {"a": [1, "}"]}}', '{"a": [1, "}"]}'),
        ('{"input": 12}', "12"),
        # Without an input, the written text is sent.
        ('{"code": "a\\nb"}', '{"code": "a\\nb"}'),
        ("{}", ""),
        ('"{\\"input\\": \\"a\\"}"', "a"),
    ],
)
def test_arguments_become_a_text_and_those_of_a_function_beside_it_stay(arguments, text):
    assert read("hermes", [hermes(arguments)]) == [("custom run", text)]

    beside = ("get_weather", '{"input": "a\\nb"}')
    calls = families.hermes([beside, ("run", arguments)])
    assert read("hermes", [calls]) == [beside, ("custom run", text)]


@table(
    "arguments, text",
    [('{"inp', ""), ('{"input": ', ""), ('{"input": "a\\', "a\\"), ('{"input": "a\\u00', "a\\u00")],
)
def test_a_call_that_is_cut_stays_open(arguments, text):
    output = f'<tool_call>\n{{"name": "run", "arguments": {arguments}'

    assert read("hermes", [output]) == [("open custom run", text)]


def test_the_text_is_sent_as_it_is_written():
    parser = a_parser("hermes", tools=TOOLS)
    output = hermes(custom_arguments('print("hi")\n' * 9))

    events = [event for letter in output for event in parser.feed(letter)]

    grown = [event.text for event in events if isinstance(event, ToolCallDelta)]
    assert "".join(grown) == 'print("hi")\n' * 9
    # A bracket waits for the next text: before a tag it is no part of an unclosed string.
    assert len(grown) >= 11 * 9
