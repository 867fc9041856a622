"""The real engine with the reference model: what it writes is what the room reads."""

from __future__ import annotations

import json

import pytest

from tests.tables import table
from vinery_serving.core.events import FinishReason
from vinery_serving.core.request import (
    Conversation,
    Grammar,
    GrammarKind,
    Tool,
    ToolChoice,
    ToolMode,
)

from . import tiny_chat
from .tiny_chat import calls_of

pytestmark = pytest.mark.live

WEATHER = Tool(
    "get_weather",
    "Get the weather",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
ADD = Tool(
    "add",
    "Add two numbers",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
PING = Tool("ping", "Ping")
TOOLS = (WEATHER, ADD, PING)

REQUIRED = ToolChoice(ToolMode.REQUIRED)
ONE_CITY = "What is the weather in Paris?"
TWO_CITIES = "What is the weather in Paris and in London?"


def asked(question: str, *, tools=TOOLS, **fields) -> Conversation:
    return tiny_chat.asked(question, tools=tools, **fields)


PARIS = ("get_weather", {"city": "Paris"})
LONDON = ("get_weather", {"city": "London"})


def test_it_answers_with_text(model):
    result = model.answer(asked("What is the capital of France?", tools=()))

    assert result.text == "The capital of France is Paris."
    assert result.finish_reason is FinishReason.STOP


def test_it_calls_a_tool_of_its_own_will(model):
    result = model.answer(asked(ONE_CITY))

    assert calls_of(result) == [PARIS]
    assert result.text == ""
    assert result.finish_reason is FinishReason.TOOL_CALLS


def test_it_calls_two_tools_of_its_own_will(model):
    assert calls_of(model.answer(asked(TWO_CITIES))) == [PARIS, LONDON]


def test_it_thinks_before_it_calls(model):
    result = model.answer(asked(ONE_CITY, thinking=True))

    assert result.reasoning == f"The user asks: {ONE_CITY} I call get_weather."
    assert calls_of(result) == [PARIS]
    assert result.text == ""


@table("thinking", [False, True])
def test_a_required_call_is_written_even_where_no_tool_fits(model, thinking):
    result = model.answer(asked("Hello!", thinking=thinking, tool_choice=REQUIRED))

    [(name, _)] = calls_of(result)
    assert name in {tool.name for tool in TOOLS}
    assert result.text == ""
    assert bool(result.reasoning) == thinking


@table("thinking", [False, True])
def test_several_calls_can_be_required(model, thinking):
    result = model.answer(asked(TWO_CITIES, thinking=thinking, tool_choice=REQUIRED))

    assert calls_of(result) == [PARIS, LONDON]


@table("choice", [REQUIRED, ToolChoice()])
@table("thinking", [False, True])
def test_only_one_call_is_written_when_they_may_not_be_parallel(model, choice, thinking):
    chat = asked(TWO_CITIES, thinking=thinking, tool_choice=choice, parallel_tool_calls=False)

    assert calls_of(model.answer(chat)) == [PARIS]


@table("thinking", [False, True])
def test_a_named_tool_is_called_even_where_another_fits(model, thinking):
    choice = ToolChoice(ToolMode.NAMED, "add")

    [(name, arguments)] = calls_of(
        model.answer(asked(ONE_CITY, thinking=thinking, tool_choice=choice))
    )

    assert name == "add"
    assert {type(value) for value in arguments.values()} == {int}
    assert arguments.keys() == {"a", "b"}


def test_a_named_tool_without_parameters_gets_an_empty_object(model):
    choice = ToolChoice(ToolMode.NAMED, "ping")

    assert calls_of(model.answer(asked(ONE_CITY, tool_choice=choice))) == [("ping", {})]


@table("thinking", [False, True])
def test_strict_tools_leave_the_model_free_to_answer(model, thinking):
    strict = Tool(WEATHER.name, WEATHER.description, WEATHER.parameters, strict=True)

    answered = model.answer(asked("Hello!", tools=(strict, ADD), thinking=thinking))
    called = model.answer(asked(TWO_CITIES, tools=(strict, ADD), thinking=thinking))

    assert answered.text == "Hello! How can I help you today?"
    assert answered.tool_calls == ()
    assert calls_of(called) == [PARIS, LONDON]


@table("thinking", [False, True])
@table(
    "grammar",
    [
        Grammar(GrammarKind.REGEX, "(yes|no)"),
        Grammar(GrammarKind.EBNF, 'root ::= "yes" | "no"'),
        Grammar(GrammarKind.JSON_SCHEMA, '{"enum": ["yes", "no"]}'),
        Grammar(
            GrammarKind.STRUCTURAL_TAG,
            '{"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}}',
        ),
    ],
)
def test_a_grammar_holds_for_the_answer_after_reasoning(model, grammar, thinking):
    result = model.answer(asked("Say: yes", tools=(), thinking=thinking), grammar)

    assert result.text.strip('"') in {"yes", "no"}
    assert bool(result.reasoning) == thinking


def test_json_holds_for_the_answer_after_reasoning(model):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    question = "Give me JSON for a person named Bob who is 4 years old."
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))

    result = model.answer(asked(question, tools=(), thinking=True), grammar)

    assert json.loads(result.text) == {"name": "Bob", "age": 4}
    assert result.reasoning


@table(
    "schema, fits",
    [
        ({"enum": ['é"\\\n']}, lambda value: value == 'é"\\\n'),
        ({"const": {"a": [1, None]}}, lambda value: value == {"a": [1, None]}),
        ({"type": "integer", "minimum": 1, "maximum": 5}, lambda value: value in range(1, 6)),
        ({"type": ["boolean", "null"]}, lambda value: value in (True, False, None)),
        (
            {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
            lambda value: len(value) in (2, 3) and set(value) <= {True, False},
        ),
        (
            {"type": "array", "items": {"type": "null"}, "maxItems": 2},
            lambda value: value in ([], [None], [None, None]),
        ),
        ({"type": "string", "minLength": 2, "maxLength": 4}, lambda value: 2 <= len(value) <= 4),
        (
            {
                "$defs": {
                    "node": {
                        "type": "object",
                        "properties": {
                            "leaf": {"type": "boolean"},
                            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                        },
                        "required": ["leaf", "next"],
                    }
                },
                "$ref": "#/$defs/node",
            },
            lambda value: value.keys() == {"leaf", "next"},
        ),
        (
            {
                "type": "object",
                "properties": {name: {"type": "boolean"} for name in "abcd"},
                "required": ["b", "d"],
            },
            lambda value: {"b", "d"} <= value.keys() and list(value) == sorted(value),
        ),
        (
            {"type": "object", "properties": {name: {"type": "boolean"} for name in "ab"}},
            lambda value: value.keys() <= {"a", "b"},
        ),
    ],
)
def test_what_the_grammar_of_a_schema_allows_fits_the_schema(model, schema, fits):
    """The model ends by itself: with blanks without end, it would not."""
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))

    result = model.answer(asked("Hello!", tools=()), grammar)

    assert fits(json.loads(result.text))
