"""Which family a template uses, and what forces its calls."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tables import table
from vinery_serving.constraints.answers import answer_grammar, tool_grammar
from vinery_serving.constraints.families.registry import by_name, detect, family_names
from vinery_serving.constraints.family import GrammarFamily
from vinery_serving.constraints.json_schema.translator import json_grammar
from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.output_formats import (
    CALL_FORMATS,
    PLAIN,
    REASONING_FORMATS,
    check_output_format,
)
from vinery_serving.core.request import Grammar, GrammarKind, Tool, ToolChoice, ToolMode
from vinery_serving.output.parsers.base import THINK

from .builders import MODEL, WEATHER, read

# Chat templates in the manner of each model: short, but with all its marks.
TEMPLATES = Path(__file__).parent / "templates"
AUTO = ToolChoice()
REQUIRED = ToolChoice(ToolMode.REQUIRED)
STRICT = Tool("strict", None, {"type": "object", "properties": {"a": {}}}, strict=True)
PING = Tool("ping")


def a_grammar(name="hermes", tools=(WEATHER,), choice=REQUIRED, parallel=True, opens=False):
    return tool_grammar(
        by_name(name).grammar, tools, choice, parallel=parallel, opens_reasoning=opens
    )


def format_of(grammar):
    assert grammar.kind is GrammarKind.STRUCTURAL_TAG
    return json.loads(grammar.source)["format"]


def test_the_reference_model_thinks_and_calls():
    template = (MODEL / "chat_template.jinja").read_text()

    assert detect(template).name == "think+hermes"


@table(
    "text, name",
    [
        (None, "plain"),
        ("{{ messages }}", "plain"),
        ("<tool_call>", "hermes"),
        ("x.split('</think>')", "think"),
        ("{{ '<|assistant|><think>' }}", "think"),
        ("{{- '<|start|>assistant<|channel|>final<|message|>' }}", "gptoss"),
        ("{{- ' to=self<|message|>' }}{{- '<atem:function_calls>' }}", "onyx"),
        ("{{- '<|tool_call>call:' }}{{- '<|channel>thought' }}", "gemma4"),
        ("{{- '<tool_call>\\n<function=' + name }}{{- '<parameter=' + key }}", "qwen3coder"),
        (
            "{{- '<think>\\n' }}{{- '<tool_call>\\n<function=' + name }}{{- '<parameter=' }}",
            "think+qwen3coder",
        ),
        ("{{- '<function name=\"' ~ name }}{{- '<param name=\"' ~ key }}<think>", "think+minicpm5"),
        (
            "{{- '<tool_call>' + name }}{{- '<arg_key>' + key }}{{- '<think></think>' }}",
            "think+glm4",
        ),
        ("List of tools: <|tool_list_start|>[", "lfm2"),
        ("{{- '<|im_start|>system' }}List of tools: [{{ '</think>' }}", "think+lfm2"),
        ("<|start_header_id|>Write [func_name1(params_name1=params_value1)]", "llama3_pythonic"),
        ("<|header_start|>Write [func_name1(params_name1=params_value1)]", "llama4_pythonic"),
        ("<tool_call>{{ tool_call | tojson }}</tool_call>", "hermes"),
    ],
)
def test_marks_in_the_template_decide_the_family(text, name):
    assert detect(text).name == name


@table("path", sorted(TEMPLATES.glob("*/*.jinja")))
def test_a_template_has_the_family_of_its_folder(path):
    assert detect(path.read_text()).name == path.parent.name


@table(
    "other, name",
    [
        ("none", "plain"),
        ("hermes3", "hermes"),
        ("qwen3", "think"),
        ("qwen3+hermes3", "think+hermes"),
        ("deepseek_r1+llama3", "deepseek_r1+llama3"),
    ],
)
def test_names_of_other_servers_are_understood(other, name):
    assert by_name(other).name == name


@table("name", ["german", "hermes+think", "think+think", "", "+", "think+", "think+none", "a+b+c"])
def test_an_unknown_family_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=f"'{re.escape(name)}'.*hermes, "):
        by_name(name)
    with pytest.raises(ValueError, match="Known formats are deepseek_r1, "):
        check_output_format(name)


def test_every_name_has_a_family_and_every_family_a_name():
    both = {f"{reasoning}+{calls}" for reasoning in REASONING_FORMATS for calls in CALL_FORMATS}

    assert set(family_names()) == {PLAIN, *REASONING_FORMATS, *CALL_FORMATS} | both


def test_without_a_format_a_call_cannot_be_forced_and_none_is_read():
    plain = by_name("none")

    assert not plain.grammar.supports_calls
    assert read("none", '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>') == [
        ("text", '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>')
    ]


def test_an_output_that_begins_in_reasoning_ends_it_before_what_is_demanded():
    calls = format_of(a_grammar("deepseek_r1+hermes"))
    answer = answer_grammar(
        by_name("deepseek_r1").grammar, Grammar(GrammarKind.REGEX, "a|b"), opens_reasoning=False
    )

    assert calls["elements"][0]["end"] == "</think>"
    assert format_of(answer)["elements"][0]["end"] == "</think>"


def test_marks_around_an_answer_are_part_of_its_grammar():
    marked = GrammarFamily(answer_begin="<")
    grammar = Grammar(GrammarKind.REGEX, "a|b", "guided_regex")

    bare = answer_grammar(marked, grammar, opens_reasoning=False)
    after = answer_grammar(replace(marked, reasoning=THINK), grammar, opens_reasoning=True)

    assert bare.param == "guided_regex"
    begin, answer = format_of(bare)["elements"]
    assert begin["value"] == "<"
    assert "[a-b]" in answer["grammar"]
    assert format_of(after)["elements"][-1] == format_of(bare)


def test_tags_of_a_family_must_reach_its_parser():
    assert by_name("think+hermes").parser.special_texts == {
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
    }


@table(
    "tools, choice",
    [((), AUTO), ((WEATHER,), AUTO), ((WEATHER, STRICT), ToolChoice(ToolMode.NONE))],
)
def test_where_nothing_is_demanded_there_is_no_grammar(tools, choice):
    assert a_grammar(tools=tools, choice=choice) is None


def test_a_required_call_may_be_of_any_tool():
    calls = format_of(a_grammar(tools=(WEATHER, PING)))

    assert [tag["begin"] for tag in calls["tags"]] == [
        '<tool_call>\n{"name": "get_weather", "arguments": ',
        '<tool_call>\n{"name": "ping", "arguments": ',
    ]
    assert calls["at_least_one"]
    assert not calls["stop_after_first"]
    # A tool without parameters takes an empty object.
    assert calls["tags"][1]["content"]["grammar"].startswith('root ::= "{}"\n')


def test_a_named_call_is_one_call_of_that_tool():
    calls = format_of(a_grammar(tools=(WEATHER, PING), choice=ToolChoice(ToolMode.NAMED, "ping")))

    assert len(calls["tags"]) == 1
    assert calls["stop_after_first"]


def test_one_call_at_most_is_held_to():
    assert format_of(a_grammar(parallel=False))["stop_after_first"]
    assert format_of(a_grammar(choice=AUTO, parallel=False))["stop_after_first"]


def test_strict_tools_are_held_to_their_schema_in_free_text():
    calls = format_of(a_grammar(tools=(STRICT, WEATHER), choice=AUTO))

    assert calls["type"] == "triggered_tags"
    assert [tag["content"]["grammar"] for tag in calls["tags"]] == [
        json_grammar(STRICT.parameters),
        json_grammar({"type": "object"}),
    ]


@table("mode", [ToolMode.AUTO, ToolMode.REQUIRED])
def test_only_tools_that_are_allowed_can_be_called(mode):
    choice = ToolChoice(mode, allowed=("ping",))

    [tag] = format_of(a_grammar(tools=(WEATHER, PING), choice=choice))["tags"]

    assert '"ping"' in tag["begin"]


def test_a_tools_name_cannot_break_out_of_the_grammar():
    [tag] = format_of(a_grammar(tools=(Tool('a"b'),)))["tags"]

    assert r'"a\"b"' in tag["begin"]


def test_open_reasoning_ends_before_the_calls():
    [reasoning, gap, calls] = format_of(a_grammar("think+hermes", opens=True))["elements"]

    assert (reasoning["begin"], reasoning["end"]) == ("", "</think>")
    assert gap["value"] == "\n\n"
    assert calls["type"] == "tags_with_separator"


def test_a_tool_that_is_not_there_cannot_be_named():
    with pytest.raises(InvalidRequest, match="'pong'") as caught:
        a_grammar(choice=ToolChoice(ToolMode.NAMED, "pong"))

    assert caught.value.param == "tool_choice"


def test_a_model_without_calls_cannot_be_forced():
    with pytest.raises(UnsupportedParameter) as caught:
        a_grammar("think")

    assert caught.value.param == "tool_choice"
    # It writes no second call, and none of those that are allowed.
    assert a_grammar("plain", choice=AUTO, parallel=False) is None
    assert a_grammar("plain", choice=ToolChoice(allowed=("get_weather",))) is None
