"""Families whose calls are not JSON: detection, and the tags of calls."""

import json
import re
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core.errors import InvalidGrammar, UnsupportedParameter
from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.grammars.families.registry import by_name

AUTO = ToolChoice()
REQUIRED = ToolChoice(ToolMode.REQUIRED)
PING = Tool("ping")
TAGGED = ["qwen3coder", "glm4", "minicpm5", "onyx"]
UNION = {"anyOf": [{"type": "object"}, {"type": "null"}]}


def a_tool(*, strict: bool = False, **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool("f", None, schema, strict=strict)


def calls_tag_of(name: str, *tools: Tool, choice: ToolChoice = REQUIRED) -> Any:
    return by_name(name).grammar.calls(tools, choice, parallel=True)


@table(
    "schema, names",
    [
        (None, []),
        ({"type": "object", "properties": {}, "additionalProperties": False}, []),
        ({"type": "object"}, None),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, None),
        ({"type": "object", "properties": {"a": {}}, "minProperties": 1}, None),
        ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, None),
        ({"properties": {"a": {"$ref": "#/$defs/x"}, "b": True}, "$defs": {"x": {}}}, ["a", "b"]),
    ],
)
def test_a_schema_is_a_list_of_parameters_or_more(schema, names):
    [tag] = calls_tag_of("qwen3coder", Tool("f", None, schema))["tags"]
    listed = re.findall(r"<parameter=(\w)>", json.dumps(tag["content"]))
    assert listed == (names or [])
    assert (tag["content"] == {"type": "any_text"}) == (names is None)


@table("name", TAGGED)
def test_only_strict_tools_are_enforced_in_free_text_and_others_where_they_can_be(name):
    [tag] = calls_tag_of(name, Tool("f", None, UNION))["tags"]
    assert tag["content"] == {"type": "any_text"}
    with pytest.raises(UnsupportedParameter, match="'f'") as caught:
        calls_tag_of(name, Tool("f", None, UNION, strict=True))
    assert caught.value.param == "tools"

    tag = calls_tag_of(name, a_tool(strict=True, a={"type": "boolean"}), PING, choice=AUTO)
    strict, free = tag["tags"]
    assert tag["type"] == "triggered_tags"
    assert strict["begin"].startswith(tag["triggers"][0])
    assert strict["content"]["type"] == "tag"
    assert free["content"] == {"type": "any_text"}


@table(
    "schema, value",
    [
        ({"type": "string"}, {"type": "any_text"}),
        ({"type": "string", "format": "date"}, {"type": "any_text"}),
        ({}, {"type": "any_text"}),
        ({"type": ["string", "null"]}, {"type": "any_text"}),
        ({"type": "string", "pattern": "^a+$"}, {"type": "regex", "pattern": "^a+$"}),
        (
            {"enum": ['a "b"', 5, None]},
            {"type": "grammar", "grammar": r'root ::= "a \"b\"" | "5" | "null"'},
        ),
        (
            {"type": "string", "minLength": 1, "maxLength": 3},
            {"type": "grammar", "grammar": "root ::= [^<]{1,3}"},
        ),
        ({"type": "string", "maxLength": 100_000}, {"type": "any_text"}),
    ],
)
def test_strings_between_tags_are_raw(schema, value):
    [tag] = calls_tag_of("qwen3coder", a_tool(a=schema))["tags"]

    assert tag["content"]["content"] == value


def test_a_choice_between_text_and_json_is_kept():
    union = {"anyOf": [{"enum": ["x"]}, {"type": "null"}]}
    [tag] = calls_tag_of("glm4", a_tool(a=union))["tags"]

    text, null = tag["content"]["content"]["elements"]
    assert text["grammar"] == 'root ::= "x"'
    assert null["grammar"] == 'root ::= "null"\n'


@table("name", ["lfm2", "gemma4"])
def test_an_invalid_schema_of_an_argument_is_refused(name):
    with pytest.raises(InvalidGrammar, match="must be one of object"):
        calls_tag_of(name, a_tool(a={"type": "text"}))


@table("name", ["llama3_pythonic", "llama4_pythonic"])
def test_only_a_tools_name_begins_a_call_in_free_text(name):
    tag = calls_tag_of(name, a_tool(strict=True), PING, choice=AUTO)

    assert tag["triggers"] == ["[f(", "[ping("]


@table("name", ["gptoss", "onyx"])
def test_reasoning_may_precede_a_forced_call_and_no_free_text(name):
    grammar = by_name(name).grammar
    calls, text = calls_tag_of(name, PING), calls_tag_of(name, PING, choice=AUTO)

    reasoned, direct = grammar.after_reasoning(calls)["elements"]

    assert direct == calls
    assert reasoned["elements"][0]["begin"] == by_name(name).parser.reasoning.open.text
    assert reasoned["elements"][1] == calls
    assert grammar.after_reasoning(text) == text
