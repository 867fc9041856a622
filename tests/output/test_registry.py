"""The family of a template, and the grammars of calls."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import Grammar, GrammarKind, Tool, ToolChoice, ToolMode
from vinery_serving.core.tasks import CALL_FORMATS, PLAIN, REASONING_FORMATS, check_output_format
from vinery_serving.grammars.answers import answer_grammar, tool_grammar
from vinery_serving.grammars.families.registry import FAMILIES, by_name, detect
from vinery_serving.grammars.family import GrammarFamily
from vinery_serving.grammars.json_schema.translator import json_grammar
from vinery_serving.output.parsers.base import THINK

from .builders import MODEL, WEATHER

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


@table("path", sorted(TEMPLATES.glob("*/*.jinja")))
def test_marks_in_a_template_decide_the_family_which_is_that_of_its_folder(path):
    assert detect(path.read_text()).name == path.parent.name
    assert detect((MODEL / "chat_template.jinja").read_text()).name == "think+hermes"
    assert detect(None).name == "plain"


OF_OTHER_SERVERS = {"none": "plain", "hermes3": "hermes", "qwen3": "think"}
OF_OTHER_SERVERS |= {"qwen3+hermes3": "think+hermes", "deepseek_r1+llama3": "deepseek_r1+llama3"}


@table("name", ["german", "hermes+think", "think+think", "", "+", "think+", "think+none", "a+b+c"])
def test_names_of_other_servers_are_understood_and_unknown_ones_refused_with_the_known(name):
    assert {other: by_name(other).name for other in OF_OTHER_SERVERS} == OF_OTHER_SERVERS
    with pytest.raises(ValueError, match=f"'{re.escape(name)}'.*hermes, "):
        by_name(name)
    with pytest.raises(ValueError, match="Known formats are cohere, "):
        check_output_format(name)


def test_reasoning_ends_before_what_is_demanded():
    calls = format_of(a_grammar("deepseek_r1+hermes"))
    answer = answer_grammar(
        by_name("deepseek_r1").grammar, Grammar(GrammarKind.REGEX, "a|b"), opens_reasoning=False
    )
    [reasoning, gap, opened_calls] = format_of(a_grammar("think+hermes", opens=True))["elements"]

    assert calls["elements"][0]["end"] == "</think>"
    assert format_of(answer)["elements"][0]["end"] == "</think>"
    assert (reasoning["begin"], reasoning["end"], gap["value"]) == ("", "</think>", "\n\n")
    assert opened_calls["type"] == "tags_with_separator"


def test_marks_around_an_answer_are_part_of_its_grammar():
    marked = GrammarFamily(answer_begin="<")
    grammar = Grammar(GrammarKind.REGEX, "a|b", "guided_regex")

    bare = answer_grammar(marked, grammar, opens_reasoning=False)
    after = answer_grammar(replace(marked, reasoning=THINK), grammar, opens_reasoning=True)

    begin, answer = format_of(bare)["elements"]
    assert (begin["value"], bare.param) == ("<", "guided_regex")
    assert "[a-b]" in answer["grammar"]
    assert format_of(after)["elements"][-1] == format_of(bare)


def test_every_name_has_a_family_whose_tags_reach_its_parser():
    both = {f"{reasoning}+{calls}" for reasoning in REASONING_FORMATS for calls in CALL_FORMATS}
    assert set(FAMILIES) == {PLAIN, *REASONING_FORMATS, *CALL_FORMATS} | both
    assert all(by_name(name).name == name for name in sorted(FAMILIES))
    tags = {"<think>", "</think>", "<tool_call>", "</tool_call>"}
    assert by_name("think+hermes").parser.special_texts == tags


def test_strict_tools_are_held_to_their_schema_in_free_text_and_else_nothing_is_demanded():
    calls = format_of(a_grammar(tools=(STRICT, WEATHER), choice=AUTO))

    assert calls["type"] == "triggered_tags"
    assert [tag["content"]["grammar"] for tag in calls["tags"]] == [
        json_grammar(STRICT.parameters),
        json_grammar({"type": "object"}),
    ]
    for tools in ((), (WEATHER,)):
        assert a_grammar(tools=tools, choice=AUTO) is None
    assert a_grammar(tools=(WEATHER, STRICT), choice=ToolChoice(ToolMode.NONE)) is None


def test_a_required_call_may_be_of_any_tool_and_a_named_one_is_one_call_of_that_tool():
    calls = format_of(a_grammar(tools=(WEATHER, PING)))
    choice = ToolChoice(ToolMode.NAMED, "ping")
    named = format_of(a_grammar(tools=(WEATHER, PING), choice=choice))

    assert [tag["begin"] for tag in calls["tags"]] == [
        '<tool_call>\n{"name": "get_weather", "arguments": ',
        '<tool_call>\n{"name": "ping", "arguments": ',
    ]
    assert calls["at_least_one"]
    assert not calls["stop_after_first"]
    # A tool without parameters takes an empty object.
    assert calls["tags"][1]["content"]["grammar"].startswith('root ::= "{}"\n')
    assert len(named["tags"]) == 1
    assert named["stop_after_first"]
    for choice in (REQUIRED, AUTO):
        assert format_of(a_grammar(choice=choice, parallel=False))["stop_after_first"]


@table("mode", [ToolMode.AUTO, ToolMode.REQUIRED])
def test_only_tools_that_are_allowed_can_be_called_by_names_that_stay_in_the_grammar(mode):
    choice = ToolChoice(mode, allowed=("ping",))
    [tag] = format_of(a_grammar(tools=(WEATHER, PING), choice=choice))["tags"]
    assert '"ping"' in tag["begin"]

    [tag] = format_of(a_grammar(tools=(Tool('a"b'),)))["tags"]
    assert r'"a\"b"' in tag["begin"]


@table(
    "name, choice, error, words",
    [
        ("hermes", ToolChoice(ToolMode.NAMED, "pong"), InvalidRequest, "'pong'"),
        ("think", REQUIRED, UnsupportedParameter, None),
    ],
)
def test_a_tool_that_is_not_there_cannot_be_named_nor_a_model_without_calls_forced(
    name, choice, error, words
):
    with pytest.raises(error, match=words) as caught:
        a_grammar(name, choice=choice)

    assert caught.value.param == "tool_choice"
    # A model without calls needs no grammar for one call at most, or for allowed tools.
    assert a_grammar("plain", choice=AUTO, parallel=False) is None
    assert a_grammar("plain", choice=ToolChoice(allowed=("get_weather",))) is None
