"""What each family that writes arguments as JSON does in its own way."""

from __future__ import annotations

import pytest

from vinery_serving.core.request import Tool

from .builders import Folded
from .builders import read as read_with
from .families import deepseek_v3, deepseek_v31

PARIS = '{"city": "Paris"}'
TOOLS = [Tool("get_weather"), Tool("ping"), Tool("function")]
WEATHER = ("get_weather", PARIS)


def read(name: str, text: str, *, is_whole: bool = False) -> Folded:
    return read_with(name, text, tools=TOOLS, is_whole=is_whole)


def test_llama_calls_may_have_a_type_first():
    text = f'{{"type": "function", "name": "get_weather", "parameters": {PARIS}}}'

    assert read("llama3", text) == [WEATHER]


@pytest.mark.parametrize("name", ["llama3", "phi4", "hermes"])
@pytest.mark.parametrize(
    "call",
    [
        f'{{"type": "function", "function": "get_weather", "parameters": {PARIS}}}',
        f'{{"type": "function", "function": {{"name": "get_weather", "arguments": {PARIS}}}}}',
        f'{{"function": {{"arguments": {PARIS}, "name": "get_weather"}}, "id": "1"}}',
    ],
)
def test_the_name_may_be_under_function(name, call):
    opening = {"llama3": "", "phi4": "functools[", "hermes": "<tool_call>"}[name]

    assert read(name, opening + call) == [WEATHER]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bob", "age": 4}',
        '{"name": "get_weather"}',
        '{"name": "Bob", "parameters": {}}',
        '{"name": "get_weather", "description": "Now.", "parameters": {}}',
        '{"parameters": {"a": 1}, "name": "Bob"}',
        "```json\n{\n}\n```",
        '{"city": "Paris"}',
    ],
)
def test_a_json_answer_is_no_call_of_llama(text):
    assert read("llama3", text) == [("text", text)]


def test_after_its_tag_llama_may_call_what_is_not_there():
    text = f'<|python_tag|>{{"name": "other", "parameters": {PARIS}}}'

    assert read("llama3", text) == [("other", PARIS)]


def test_python_after_llamas_tag_is_text():
    text = '<|python_tag|>search.call(query="x")'

    assert read("llama3", text) == [("text", text)]


def test_a_semicolon_after_a_call_that_begins_no_other_is_text():
    text = f'{{"name": "get_weather", "parameters": {PARIS}}}; done'

    assert read("llama3", text) == [WEATHER, ("text", "; done")]


def test_functools_without_a_bracket_is_python():
    text = "Use functools.partial or functools(x)."

    assert read("phi4", text) == [("text", text)]


def test_a_call_that_is_none_does_not_spoil_the_one_before():
    text = f'functools[{{"name": "get_weather", "arguments": {PARIS}}}, {{"x": 1}}] Done.'

    assert read("phi4", text) == [WEATHER, ("text", ', {"x": 1}] Done.')]


@pytest.mark.parametrize("text", ["functools[]", "functools[1, 2]", "<|tool_call|>[no"])
def test_an_array_without_calls_is_text(text):
    assert read("phi4", text) == [("text", text)]


def test_granite_may_leave_the_array_out():
    text = f'<|tool_call|>{{"name": "get_weather", "arguments": {PARIS}}}'

    assert read("granite", text) == [WEATHER]


@pytest.mark.parametrize(
    "head", ["", "[ARGS]", "[CALL_ID]abc123XYZ[ARGS]", "[CALL_ID]abc123XYZ", " [ARGS] "]
)
def test_a_head_of_mistral_may_have_an_id_and_a_mark(head):
    assert read("devstral", f"[TOOL_CALLS] get_weather{head}{PARIS}") == [WEATHER]


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]",
        "[TOOL_CALLS] I would call get_weather",
        "[TOOL_CALLS]get weather[ARGS]{}",
        "[TOOL_CALLS][ARGS]{}",
        "[TOOL_CALLS]" + "x" * 600 + "{}",
        "[TOOL_CALLS][1, 2]",
        '[{"name": "other", "arguments": {}}]',
        "an array [{x}]",
    ],
)
@pytest.mark.parametrize("name", ["mistral", "devstral"])
def test_what_is_no_call_of_mistral_is_given_back(name, text):
    assert read(name, text, is_whole=True) == [("text", text)]


def test_a_tag_that_begins_nothing_does_not_hide_the_next():
    text = f"[TOOL_CALLS]?? [TOOL_CALLS]get_weather[ARGS]{PARIS}"

    assert read("devstral", text) == [("text", "[TOOL_CALLS]?? "), WEATHER]


@pytest.mark.parametrize("write", [deepseek_v3, deepseek_v31])
def test_the_outer_tags_of_deepseek_may_be_missing(write):
    text = write([WEATHER, ("ping", "{}")])
    bare = text.removeprefix("<｜tool▁calls▁begin｜>").removesuffix("<｜tool▁calls▁end｜>")

    assert read("deepseek_v3", bare) == [WEATHER, ("ping", "{}")]


@pytest.mark.parametrize("write", [deepseek_v3, deepseek_v31])
def test_a_tool_of_deepseek_may_be_called_function(write):
    assert read("deepseek_v3", write([("function", PARIS)])) == [("function", PARIS)]


@pytest.mark.parametrize(
    "text",
    [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁begin｜> no <｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_wea",
        "<｜tool▁call▁begin｜>get weather<｜tool▁sep｜>{}",
        "<｜tool▁call▁begin｜><｜tool▁sep｜>{}",
        "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
    ],
)
def test_what_is_no_call_of_deepseek_is_given_back(text):
    assert read("deepseek_v31", text, is_whole=True) == [("text", text)]


def test_a_call_of_deepseek_that_is_none_does_not_spoil_the_one_before():
    text = deepseek_v31([WEATHER]).removesuffix("<｜tool▁calls▁end｜>")
    broken = "<｜tool▁call▁begin｜>no name<｜tool▁sep｜>{}"

    assert read("deepseek_v31", text + broken) == [WEATHER, ("text", broken)]


def test_a_missing_brace_does_not_swallow_the_next_call():
    text = deepseek_v31([WEATHER, ("ping", "{}")]).replace('Paris"}', 'Paris"')

    assert read("deepseek_v31", text) == [WEATHER, ("ping", "{}")]


@pytest.mark.parametrize("head", ["functions.get_weather:12", "get_weather:0", " get_weather "])
def test_a_head_of_kimi_may_have_a_prefix_and_a_number(head):
    call = f"<|tool_call_begin|>{head}<|tool_call_argument_begin|> {PARIS}<|tool_call_end|>"

    assert read("kimi_k2", call) == [WEATHER]


@pytest.mark.parametrize(
    "text",
    [
        "<|tool_calls_section_begin|> no call <|tool_calls_section_end|>",
        "<|tool_call_begin|>functions.get_weather:0{}",
        "<|tool_call_begin|>functions.get_wea",
    ],
)
def test_what_is_no_call_of_kimi_is_given_back(text):
    assert read("kimi_k2", text, is_whole=True) == [("text", text)]
