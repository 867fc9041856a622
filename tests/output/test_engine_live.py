"""The real engine with the reference model: the parsers read its output."""

import json

import pytest

from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.events import FinishReason

from . import tiny_chat
from .builders import object_of
from .tiny_chat import calls_of

pytestmark = pytest.mark.live

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
WEATHER = req.Tool("get_weather", "Get the weather", object_of(city=TEXT))
ADD = req.Tool("add", "Add two numbers", object_of(a=NUMBER, b=NUMBER))
PING = req.Tool("ping", "Ping")
TOOLS = (WEATHER, ADD, PING)

REQUIRED = req.ToolChoice(req.ToolMode.REQUIRED)
ONE_CITY = "What is the weather in Paris?"
TWO_CITIES = "What is the weather in Paris and in London?"


def asked(question: str, *, tools=TOOLS, **fields) -> req.Conversation:
    return tiny_chat.asked(question, tools=tools, **fields)


PARIS = ("get_weather", {"city": "Paris"})
LONDON = ("get_weather", {"city": "London"})


@pytest.mark.smoke
def test_it_answers_with_text_and_thinks_before_it_calls(model):
    result = model.answer(asked("What is the capital of France?", tools=()))
    assert result.text == "The capital of France is Paris."
    assert result.finish_reason is FinishReason.STOP

    result = model.answer(asked(ONE_CITY, thinking=True))
    assert result.reasoning == f"The user asks: {ONE_CITY} I call get_weather."
    assert calls_of(result) == [PARIS]
    assert result.text == ""


@pytest.mark.smoke
@table(
    "question, fields, calls",
    [
        # The model chooses calls, or calls are required.
        (ONE_CITY, {}, [PARIS]),
        (TWO_CITIES, {}, [PARIS, LONDON]),
        (TWO_CITIES, {"tool_choice": REQUIRED}, [PARIS, LONDON]),
        (TWO_CITIES, {"tool_choice": REQUIRED, "thinking": True}, [PARIS, LONDON]),
        (TWO_CITIES, {"thinking": True, "parallel_tool_calls": False}, [PARIS]),
    ],
)
def test_it_calls_tools(model, question, fields, calls):
    result = model.answer(asked(question, **fields))

    assert calls_of(result) == calls
    assert result.text == ""
    assert result.finish_reason is FinishReason.TOOL_CALLS


@table("thinking", [False, True])
@table(
    "grammar",
    [
        req.Grammar(req.GrammarKind.REGEX, "(yes|no)"),
        req.Grammar(req.GrammarKind.EBNF, 'root ::= "yes" | "no"'),
        req.Grammar(req.GrammarKind.JSON_SCHEMA, '{"enum": ["yes", "no"]}'),
        req.Grammar(
            req.GrammarKind.STRUCTURAL_TAG,
            '{"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}}',
        ),
    ],
)
def test_a_grammar_holds_for_the_answer_after_reasoning(model, grammar, thinking):
    result = model.answer(asked("Say: yes", tools=(), thinking=thinking), grammar)

    assert result.text.strip('"') in {"yes", "no"}
    assert bool(result.reasoning) == thinking


@pytest.mark.smoke
def test_json_holds_for_the_answer_after_reasoning(model):
    schema = object_of(name=TEXT, age=NUMBER)
    question = "Give me JSON for a person named Bob who is 4 years old."
    grammar = req.Grammar(req.GrammarKind.JSON_SCHEMA, json.dumps(schema))

    result = model.answer(asked(question, tools=(), thinking=True), grammar)

    assert json.loads(result.text) == {"name": "Bob", "age": 4}
    assert result.reasoning
