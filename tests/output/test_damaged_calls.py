"""Calls that models write oddly or damaged: each is read as it was meant, and so are those beside
it. Each text is also read character by character, and in any two parts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vinery_serving.core.tools import custom_tool

from . import forms
from .builders import Folded
from .forms import TOOLS

PING = ("ping", "{}")
COUNT = ("f", '{"count": 1}')
RUN = custom_tool("run", "Run code", None)


def read(name: str, text: str) -> Folded:
    """What is read in a text that the model has ended."""
    return forms.read(name, text, tools=[*TOOLS, RUN], is_whole=True)


def arguments_in(name: str, text: str) -> Any:
    """The arguments of the only call."""
    [(called, arguments)] = read(name, text)
    assert called == "f"
    return json.loads(arguments)


# Gemma 4


@pytest.mark.parametrize("between", ["", ",", " ", "\n"])
def test_several_calls_of_gemma_may_be_in_one_block(between: str) -> None:
    text = f"<|tool_call>call:f{{count: 1}}{between}call:ping{{}}<tool_call|>Done."

    assert read("gemma4", text) == [COUNT, PING, ("text", "Done.")]


def test_a_blank_may_follow_the_word_of_gemma() -> None:
    assert read("gemma4", "<|tool_call>call: f{count: 1}<tool_call|>") == [COUNT]


# LFM2


def lfm2(calls: str) -> str:
    return f"<|tool_call_start|>[{calls}]<|tool_call_end|>"


@pytest.mark.parametrize(
    "text", ["it's here", "O'Neil's", "a 'word', and more", "don't, won't", "f('x')"]
)
def test_quotes_in_a_string_of_lfm2_need_no_escape(text: str) -> None:
    calls = f"f(text='{text}', count=1), ping()"

    [(_, arguments), ping] = read("lfm2", lfm2(calls))

    assert json.loads(arguments) == {"text": text, "count": 1}
    assert ping == PING


@pytest.mark.parametrize(
    "path", ["C:\\Users\\new", "C:\\temp\\x", "d:\\new\\u12", "C:\\a b\\", "C:\\Users\\x.txt"]
)
def test_a_path_of_windows_is_raw(path: str) -> None:
    assert arguments_in("lfm2", lfm2(f"f(text='{path}', count=1)")) == {"text": path, "count": 1}


def test_a_letter_and_a_line_break_are_no_path() -> None:
    assert arguments_in("lfm2", lfm2(r"f(text='Q:\nWho?')")) == {"text": "Q:\nWho?"}


def test_a_broken_call_of_lfm2_leaves_the_next_ones() -> None:
    block = "<|tool_call_start|>[f(count=1, =)]<|tool_call_end|>"

    calls = read("lfm2", block + lfm2("ping(), f(count=1)"))

    assert calls[1:] == [PING, COUNT]


# Devstral


@pytest.mark.parametrize("mark", ["[ARGS]", "[CALL_ID]abc123XYZ[ARGS]", ""])
def test_a_call_of_devstral_may_have_no_arguments(mark: str) -> None:
    text = f'[TOOL_CALLS]ping{mark}[TOOL_CALLS]f[ARGS]{{"count": 1}}[TOOL_CALLS]ping{mark}'

    assert read("devstral", text) == [PING, COUNT, PING]


def test_a_name_that_is_cut_is_no_call_without_arguments() -> None:
    assert forms.read("devstral", "[TOOL_CALLS]ping[ARGS]") == []


# Hermes


def hermes(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


HERMES_PING = hermes('{"name": "ping"}')


@pytest.mark.parametrize(
    "arguments",
    [
        '{"text": "Paris}',
        '{"text: "Paris"}',
        '{"text": Paris"}',
        '{text": "Paris"}',
    ],
)
def test_a_lost_quote_ends_no_more_than_its_string(arguments: str) -> None:
    broken = hermes(f'{{"name": "f", "arguments": {arguments}}}')
    text = f"{broken}\n{HERMES_PING}\nDone."

    [(name, read_arguments), *rest] = read("hermes", text)

    assert (name, json.loads(read_arguments)) == ("f", {"text": "Paris"})
    assert rest == [PING, ("text", "\nDone.")]


def test_a_lost_quote_before_a_comma_leaves_the_next_member() -> None:
    text = hermes('{"name": "f", "arguments": {"text": "Paris, "count": 1}}')

    assert arguments_in("hermes", text) == {"text": "Paris", "count": 1}


@pytest.mark.parametrize("end", ["", "}", "}}", "}}}", "}]", '}}"'])
def test_a_miscounted_bracket_leaves_no_markup(end: str) -> None:
    broken = hermes(f'{{"name": "f", "arguments": {{"count": 1{end}')

    [(name, arguments), ping] = read("hermes", f"{broken}\n{HERMES_PING}")

    assert (name, json.loads(arguments), ping) == ("f", {"count": 1}, PING)


def test_a_closing_tag_may_be_there_twice() -> None:
    text = f"{HERMES_PING}\n</tool_call>\n{HERMES_PING}"

    assert read("hermes", text) == [PING, PING]


def test_what_is_no_value_is_kept_up_to_the_closing_tag() -> None:
    broken = hermes('{"name": "f", "arguments": {"count": 1, (}}')

    [(name, arguments), ping] = read("hermes", f"{broken}{HERMES_PING}")

    assert (name, ping) == ("f", PING)
    assert arguments.startswith('{"count": 1')
    assert "(}}" in arguments


# DeepSeek


def deepseek_v3(name: str, arguments: str) -> str:
    head = f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n"
    return f"{head}{arguments}\n```<｜tool▁call▁end｜>"


@pytest.mark.parametrize(
    "arguments", ['{"text": "Paris}', '{"text": "Paris"', '{"text": "Paris"}}', '{"text": "Paris']
)
def test_what_is_lost_before_a_fence_leaves_the_next_call(arguments: str) -> None:
    calls = f"{deepseek_v3('f', arguments)}\n{deepseek_v3('ping', '{}')}"

    [(name, read_arguments), *rest] = read(
        "deepseek_v3", f"<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>"
    )

    assert (name, json.loads(read_arguments)) == ("f", {"text": "Paris"})
    assert rest == [PING]


# gpt-oss


def gptoss(name: str, body: str) -> str:
    head = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{head}{body}<|call|>"


@pytest.mark.parametrize("body", ["print('a, b')  # {", "{1, 2} | {3}", "Paris, please", '{"a" 1}'])
def test_arguments_that_are_not_json_are_kept_whole(body: str) -> None:
    text = f"{gptoss('f', body)}<|start|>assistant{gptoss('ping', '{}')}"

    assert read("gptoss", text) == [("f", body), PING]


@pytest.mark.parametrize(
    "code",
    [
        'print("hi")\nfor x in {1, 2}:\n    pass',
        '{"a": 1}',
        "{% if a %}",
        '"""A module."""\nx = 1',
        '"one" + "two"',
        "",
    ],
)
def test_the_input_of_a_custom_tool_is_kept_whole(code: str) -> None:
    assert read("gptoss", gptoss("run", code)) == [("custom run", code)]
    assert read("gptoss", gptoss("run", json.dumps({"input": code}))) == [("custom run", code)]


# MiniCPM5 and Qwen3-Coder


def tagged(name: str, key: str, value: str) -> str:
    if name == "minicpm5":
        return f'<function name="f"><param name="{key}">{value}</param></function>'
    argument = f"<parameter={key}>\n{value}\n</parameter>"
    return f"<tool_call>\n<function=f>\n{argument}\n</function>\n</tool_call>"


both = pytest.mark.parametrize("name", ["minicpm5", "qwen3coder"])


@both
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{\"a\": True, 'b': null}", {"a": True, "b": None}),
        ("{'a': [1, None, true], \"b\": 'it\\'s'}", {"a": [1, None, True], "b": "it's"}),
        ("{a: 1, 'b': False,}", {"a": 1, "b": False}),
    ],
)
def test_objects_may_mix_python_and_json(name: str, text: str, value: Any) -> None:
    assert arguments_in(name, tagged(name, "more", text)) == {"more": value}


@both
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("['a', 'b']", ["a", "b"]),
        ('["a", True]', ["a", True]),
        ("[1, 2]", [1, 2]),
        ("[see here]", "[see here]"),
        ("['a'", "['a'"),
    ],
)
def test_a_list_may_be_for_a_parameter_without_a_schema(name: str, text: str, value: Any) -> None:
    assert arguments_in(name, tagged(name, "unknown", text)) == {"unknown": value}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "\nParis\n", "Paris"),
        ("text", "\ntwo\nlines\n", "two\nlines"),
        ("count", "\n 5 \n", 5),
        ("text", "\n<![CDATA[\n</param>\n]]>\n", "\n</param>\n"),
    ],
)
def test_line_breaks_around_a_value_of_minicpm_are_syntax(key: str, text: str, value: Any) -> None:
    assert arguments_in("minicpm5", tagged("minicpm5", key, text)) == {key: value}


@pytest.mark.parametrize("lost", ["</parameter>\n", "</function>\n</tool_call>", "</tool_call>"])
def test_a_lost_closing_tag_leaves_the_next_call(lost: str) -> None:
    call = tagged("qwen3coder", "text", "Paris")

    assert read("qwen3coder", f"{call.replace(lost, '', 1)}\n{call}") == [
        ("f", '{"text": "Paris"}'),
        ("f", '{"text": "Paris"}'),
    ]


def test_a_closing_tag_in_a_text_may_have_a_lot_of_space_after_it() -> None:
    value = f"a tag: </function>{' ' * 300}and more"

    assert arguments_in("qwen3coder", tagged("qwen3coder", "text", value)) == {"text": value}


@both
def test_an_escape_without_an_end_ends_with_its_string(name: str) -> None:
    text = r"{'a': '\N{', 'b': '}'}"

    assert arguments_in(name, tagged(name, "more", text)) == {"more": {"a": r"\N{", "b": "}"}}


# onyx


@pytest.mark.parametrize("head", ["", " to=f<|message|>"])
def test_an_answer_of_onyx_that_is_cut_inside_the_opening_tags_leaves_no_markup(head: str) -> None:
    text = '<atem:function_calls>\n<atem:invoke name="f'

    for end in range(2, len(text)):
        assert forms.read("onyx", head + text[:end]) == []


# Python


@pytest.mark.parametrize(
    "calls",
    [
        "f(count=1)), ping()",
        "f(count=1}), ping()",
        "f(count=1 , ), ping()",
        "f(count=1)\nping()",
        "f(count=1);ping()",
    ],
)
def test_a_miscounted_bracket_in_a_list_leaves_the_next_call(calls: str) -> None:
    assert read("lfm2", lfm2(calls)) == [COUNT, PING]


def test_a_lost_bracket_of_an_array_ends_no_more_than_the_array() -> None:
    calls = "f(items=['a', None), ping()"

    assert read("lfm2", lfm2(calls)) == [("f", '{"items": ["a", null]}'), PING]
