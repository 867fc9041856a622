"""Hermes tool calls, whole, cut, broken and between text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.core.events import TextDelta, ToolCallDelta

from .builders import a_call_started, a_parser, cut, folded, read

PARIS = '{"city": "Paris"}'


def a_call(arguments: str = PARIS, name: str = "get_weather") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def test_it_reads_one_call():
    assert read("hermes", a_call()) == [("get_weather", PARIS)]


def test_it_reads_several_calls():
    text = a_call() + "\n" + a_call('{"zone": 1}', "get_time")

    assert read("hermes", text) == [("get_weather", PARIS), ("get_time", '{"zone": 1}')]


def test_it_keeps_text_before_between_and_after_calls():
    text = f"First.\n{a_call()}\nThen.\n{a_call()}\nDone."

    assert read("hermes", text) == [
        ("text", "First.\n"),
        ("get_weather", PARIS),
        ("text", "\nThen.\n"),
        ("get_weather", PARIS),
        ("text", "\nDone."),
    ]


def test_text_that_ends_like_the_beginning_of_a_tag_is_kept():
    text = f"{a_call()} A tag is <tool_"

    assert read("hermes", text, is_whole=True) == [
        ("get_weather", PARIS),
        ("text", " A tag is <tool_"),
    ]


def test_white_space_alone_around_calls_is_not_an_answer():
    assert read("hermes", f"\n\n{a_call()}\n \n") == [("get_weather", PARIS)]


def test_white_space_alone_is_an_answer_where_no_call_is():
    assert read("hermes", " \n") == [("text", " \n")]


def test_the_last_closing_tag_may_be_missing():
    text = a_call().removesuffix("\n</tool_call>")

    assert read("hermes", text) == [("get_weather", PARIS)]


def test_a_closing_tag_may_be_missing_between_calls():
    text = a_call().removesuffix("\n</tool_call>") + "\n" + a_call()

    assert read("hermes", text) == [("get_weather", PARIS), ("get_weather", PARIS)]


def test_several_calls_may_share_one_pair_of_tags():
    inside = '{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}'

    assert read("hermes", f"<tool_call>{inside}</tool_call>") == [("a", "{}"), ("b", "{}")]


@pytest.mark.parametrize(
    "value",
    [
        "}{]['",
        'a "quoted" word',
        "one; two; three",
        "</tool_call>",
        "<tool_call>",
        "back\\slash\\",
        "emoji 😀 and é",
        '{"name": "x", "arguments": {}}',
    ],
)
def test_strings_in_arguments_may_hold_anything(value):
    arguments = json.dumps({"text": value, "after": [1, {"b": "}"}]}, ensure_ascii=False)

    assert read("hermes", a_call(arguments)) == [("get_weather", arguments)]


def test_arguments_keep_the_exact_text_of_the_model():
    arguments = '{ "b":1.50,\n  "a" : [ true ,null ] }'

    assert read("hermes", a_call(arguments)) == [("get_weather", arguments)]


def test_arguments_are_sent_while_they_grow():
    parser = a_parser("hermes")

    assert parser.feed('<tool_call>\n{"name": "get_weather", "arg') == []
    assert parser.feed('uments": {"ci') == [
        a_call_started("get_weather"),
        ToolCallDelta(0, 0, "{"),
    ]
    assert parser.feed('ty": "Pa') == [ToolCallDelta(0, 0, '"city": "Pa')]


def test_the_name_may_come_after_the_arguments():
    text = f'<tool_call>{{"arguments": {PARIS}, "name": "get_weather"}}</tool_call>'

    assert read("hermes", text) == [("get_weather", PARIS)]


def test_other_keys_do_no_harm():
    text = '<tool_call>{"id": 7, "type": "function", "name": "f", "arguments": {}}</tool_call>'

    assert read("hermes", text) == [("f", "{}")]


def test_parameters_is_another_word_for_arguments():
    assert read("hermes", a_call().replace("arguments", "parameters")) == [("get_weather", PARIS)]


@pytest.mark.parametrize("rest", ["", ', "arguments": null', ', "arguments": ""'])
def test_a_call_without_arguments_gets_an_empty_object(rest):
    assert read("hermes", f'<tool_call>{{"name": "ping"{rest}}}</tool_call>') == [("ping", "{}")]


def test_arguments_in_a_string_are_unwrapped():
    arguments = json.dumps({"text": 'a "b"\n', "path": "c:\\d", "face": "😀"})

    assert read("hermes", a_call(json.dumps(arguments))) == [("get_weather", arguments)]


def test_escaped_surrogate_pairs_in_a_string_are_one_character():
    assert read("hermes", a_call(r'"{\"a\": \"\ud83d\ude00\"}"')) == [
        ("get_weather", '{"a": "😀"}')
    ]


@pytest.mark.parametrize("value", ["{}", '""', "null", '"{}"'])
def test_a_cut_in_the_white_space_before_a_value_changes_nothing(value):
    text = f'<tool_call>{{"name":  "ping", "arguments":  {value}}}</tool_call>'

    assert read("hermes", text) == [("ping", "{}")]
    assert folded(a_parser("hermes"), list(text)) == [("ping", "{}")]


def test_half_a_surrogate_pair_can_still_be_sent():
    [(_, arguments)] = read("hermes", a_call(r'"{\"a\": \"\ud83d.\"}"'))

    assert arguments.encode() == b'{"a": "?."}'


@pytest.mark.parametrize(
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


def test_white_space_before_what_is_no_call_is_kept():
    assert read("hermes", "\n<tool_call>?") == [("text", "\n<tool_call>?")]


def test_a_call_cut_inside_its_arguments_stays_open():
    text = a_call().split("Par")[0]

    assert read("hermes", text) == [("open get_weather", '{"city": "')]


def test_a_call_cut_after_its_arguments_is_complete():
    text = a_call().split("}\n")[0]

    assert read("hermes", text) == [("get_weather", PARIS)]


def test_a_cut_closing_tag_is_dropped():
    assert read("hermes", a_call()[:-3]) == [("get_weather", PARIS)]


def test_a_missing_brace_does_not_swallow_what_follows():
    text = '<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>Done.'

    assert read("hermes", text) == [("f", '{"a": 1}'), ("text", "Done.")]


def test_without_tools_a_tag_is_text():
    parser = a_parser("hermes", has_tools=False)

    assert folded(parser, [a_call()]) == [("text", a_call())]


def test_text_is_sent_at_once():
    parser = a_parser("hermes")

    assert parser.feed("Hello") == [TextDelta(0, "Hello")]
    assert parser.feed(" <b") == [TextDelta(0, " <b")]
    assert parser.feed(" <tool") == [TextDelta(0, " ")]


_strings = st.text('ab{}[]"\\;<>/: \n😀', max_size=8)
_objects = st.dictionaries(_strings, st.one_of(_strings, st.integers(), st.lists(_strings)))
_calls = st.builds(
    lambda name, value, as_string: a_call(
        json.dumps(json.dumps(value)) if as_string else json.dumps(value), name
    ),
    st.sampled_from(["f", "get_weather"]),
    _objects,
    st.booleans(),
)
_noise = st.sampled_from(
    ["\n", " ", "Hello.", "<tool_call>", "</tool_call>", "<tool_call>\n{", '"name"', '"a": 1}', "<"]
)
_outputs = st.lists(st.one_of(_calls, _noise), max_size=5).map("".join)


@given(_outputs, st.lists(st.integers(0, 300), max_size=8))
def test_any_cut_gives_the_same(text, cuts):
    assert folded(a_parser("hermes"), cut(text, cuts)) == read("hermes", text)
    assert folded(a_parser("hermes"), list(text)) == read("hermes", text)


@given(st.lists(_objects, min_size=1, max_size=4))
def test_all_well_formed_calls_come_back_exactly(objects):
    arguments = [json.dumps(value) for value in objects]

    text = "\n".join(a_call(argument) for argument in arguments)

    assert read("hermes", text) == [("get_weather", argument) for argument in arguments]
