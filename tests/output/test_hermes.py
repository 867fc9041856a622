"""Hermes tool calls, cut, broken and between text. What every family does: test_families.py."""

import json

from tests.tables import table
from vinery_serving.core.events import TextDelta, ToolCallDelta

from .builders import a_call_started, a_parser, folded, read
from .forms import Rows, row, rows

PARIS = '{"city": "Paris"}'
WEATHER = ("get_weather", PARIS)
PING = ("ping", "{}")


def a_call(arguments: str = PARIS, name: str = "get_weather") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


UNCLOSED = a_call().removesuffix("\n</tool_call>")
UNUSUAL: Rows = {
    "white space alone is an answer where no call is": row("hermes", " \n", [("text", " \n")]),
    "the last closing tag may be missing": row("hermes", UNCLOSED, [WEATHER]),
    "a closing tag may be missing between calls": row(
        "hermes", f"{UNCLOSED}\n{a_call()}", [WEATHER, WEATHER]
    ),
    "several calls may share one pair of tags": row(
        "hermes",
        '<tool_call>{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}</tool_call>',
        [("a", "{}"), ("b", "{}")],
    ),
    "the name may come after the arguments": row(
        "hermes",
        f'<tool_call>{{"arguments": {PARIS}, "name": "get_weather"}}</tool_call>',
        [WEATHER],
    ),
    "other keys do no harm": row(
        "hermes",
        '<tool_call>{"id": 7, "type": "function", "name": "f", "arguments": {}}</tool_call>',
        [("f", "{}")],
    ),
    "parameters is another word for arguments": row(
        "hermes", a_call().replace("arguments", "parameters"), [WEATHER]
    ),
    **{
        f"a call without arguments gets an empty object: {rest}": row(
            "hermes", f'<tool_call>{{"name": "ping"{rest}}}</tool_call>', [PING]
        )
        for rest in ("", ', "arguments": null', ', "arguments": ""')
    },
    **{
        f"white space before a value: {value}": row(
            "hermes", f'<tool_call>{{"name":  "ping", "arguments":  {value}}}</tool_call>', [PING]
        )
        for value in ("{}", '""', "null", '"{}"')
    },
    "escaped surrogate pairs in a string are one character": row(
        "hermes", a_call(r'"{\"a\": \"\ud83d\ude00\"}"'), [("get_weather", '{"a": "😀"}')]
    ),
    "white space before what is no call is kept": row(
        "hermes", "\n<tool_call>?", [("text", "\n<tool_call>?")]
    ),
    "a line break in a string that is cut has its escape, also before a tag": row(
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "\n</tool_call>',
        [("open f", '{"a": "\\n</tool_call>')],
    ),
    "a call cut after its arguments is complete": row(
        "hermes", a_call().split("}\n")[0], [WEATHER]
    ),
    "a cut closing tag is dropped": row("hermes", a_call()[:-3], [WEATHER]),
    "a missing brace does not swallow what follows": row(
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>Done.',
        [("f", '{"a": 1}'), ("text", "Done.")],
    ),
}


@rows(UNUSUAL)
def test_unusual_calls_are_read(name, text, expected):
    assert read(name, text) == expected
    assert folded(a_parser(name), list(text)) == expected


def test_text_is_sent_at_once_and_arguments_while_they_grow():
    parser = a_parser("hermes")

    assert parser.feed("Hello") == [TextDelta(0, "Hello")]
    assert parser.feed(" <b") == [TextDelta(0, " <b")]
    assert parser.feed(" <tool") == [TextDelta(0, " ")]
    assert parser.feed('_call>\n{"name": "get_weather", "arg') == []
    assert parser.feed('uments": {"ci') == [a_call_started("get_weather"), ToolCallDelta(0, 0, "{")]
    assert parser.feed('ty": "Pa') == [ToolCallDelta(0, 0, '"city": "Pa')]


def test_arguments_in_a_string_are_unwrapped_and_half_a_surrogate_pair_can_be_sent():
    arguments = json.dumps({"text": 'a "b"\n', "path": "c:\\d", "face": "😀"})
    [(_, half)] = read("hermes", a_call(r'"{\"a\": \"\ud83d.\"}"'))

    assert read("hermes", a_call(json.dumps(arguments))) == [("get_weather", arguments)]
    assert half.encode() == b'{"a": "?."}'


@table(
    "text",
    [
        "<tool_call>",
        "<tool_call>\nno JSON\n</tool_call> and on",
        "<tool_call>\n[1, 2]\n</tool_call>",
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": 7, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name" "x"}\n</tool_call>',
        '<tool_call>\n{"name": "get_we',
        '<tool_call>\n{"arguments": {"city": "P',
        "Write <tool_call> to call.",
        "a < b and <tool_",
        "</tool_call>",
    ],
)
def test_what_is_no_call_is_given_back_unchanged(text):
    assert read("hermes", text, is_whole=True) == [("text", text)]
    # A text after a call, too, which ends like the beginning of a tag.
    after = read("hermes", f"{a_call()} A tag is <tool_", is_whole=True)
    assert after == [WEATHER, ("text", " A tag is <tool_")]
