"""The real engine generates calls under the grammar of every family, and the parser reads them.

The reference model's tokenizer has no special tokens of these families, so the model spells them
out. Grammar and parser are tested all the same.
"""

import json
from typing import Any

import pytest

from tests.output.builders import object_of
from tests.output.rotation import CALLING, rotated
from tests.output.tiny_chat import asked, calls_of, straight
from tests.tables import table
from vinery_serving.core.events import FinishReason, ToolCallDelta
from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.grammars.answers import tool_grammar
from vinery_serving.grammars.families.registry import FAMILIES, by_name

pytestmark = pytest.mark.live

# All values have a bounded length: under an unfamiliar grammar a weak model finds no end.
RANK = {"type": "integer", "minimum": 1, "maximum": 9}
PICK = Tool(
    "pick",
    "Pick a city",
    object_of(city={"enum": ["Paris; }", 'London "]']}, rank=RANK, is_big={"type": "boolean"}),
)
LONG = {"type": "string", "minLength": 60, "maxLength": 70}
NOTE = Tool("note", "Write something down", object_of(text=LONG))
PING = Tool("ping", "Ping")
TOOLS = (PICK, NOTE, PING)
NAMES = {tool.name for tool in TOOLS}

QUESTION = "What is the weather in Paris and in London?"
REQUIRED = ToolChoice(ToolMode.REQUIRED)


def named(name: str) -> ToolChoice:
    return ToolChoice(ToolMode.NAMED, name)


every_family = table("name", CALLING)
NAMED = (CALLING, [False, True])
STRICT = Tool("strict", None, PICK.parameters, strict=True)
DATED = Tool("dated", None, object_of([], day={"type": "string", "format": "date"}))


def is_pick(arguments: Any) -> bool:
    return (
        arguments.keys() == {"city", "rank", "is_big"}
        and arguments["city"] in ("Paris; }", 'London "]')
        and arguments["rank"] in range(1, 10)
        and isinstance(arguments["is_big"], bool)
    )


@pytest.mark.smoke
@table("name, thinking", rotated(*NAMED))
def test_a_named_call_is_generated_and_parsed(model, name, thinking):
    model.use(by_name(f"think+{name}") if _has_reasoning(name) else straight(name))
    chat = asked(
        QUESTION, tools=TOOLS, tool_choice=named("pick"), thinking=thinking and _has_reasoning(name)
    )

    result = model.answer(chat)

    [(called, arguments)] = calls_of(result)
    assert called == "pick"
    assert is_pick(arguments)
    assert result.text == ""
    assert result.finish_reason is FinishReason.TOOL_CALLS
    assert bool(result.reasoning) == (thinking and _has_reasoning(name))


def _has_reasoning(name: str) -> bool:
    return f"think+{name}" in sorted(FAMILIES)


@every_family
def test_a_tool_without_parameters_can_be_named_and_long_arguments_arrive_in_many_deltas(
    model, name
):
    model.use(straight(name))
    result = model.answer(asked(QUESTION, tools=TOOLS, tool_choice=named("ping")))
    assert calls_of(result) == [("ping", {})]

    events, is_ended = model.events(asked(QUESTION, tools=TOOLS, tool_choice=named("note")))
    deltas = [event.text for event in events if isinstance(event, ToolCallDelta)]
    assert is_ended
    # Special tokens inside a string count for the grammar, but produce no text.
    assert 20 <= len(json.loads("".join(deltas))["text"]) <= 70
    # In Python or in Gemma's notation, arguments are sent when they are complete.
    assert len(deltas) > 3 or "python" in name or "gemma" in name or name == "lfm2"


@every_family
def test_one_required_call_is_generated_and_strict_tools_leave_the_model_free_to_answer(
    model, name
):
    model.use(straight(name))
    chat = asked(QUESTION, tools=TOOLS, tool_choice=REQUIRED, parallel_tool_calls=False)
    result = model.answer(chat)
    [(called, _)] = calls_of(result)
    assert called in NAMES
    assert result.text == ""

    strict = Tool(PICK.name, PICK.description, PICK.parameters, strict=True)
    result = model.answer(asked("Hello!", tools=(strict, PING)))
    assert result.text.strip() == "Hello! How can I help you today?"
    assert result.tool_calls == ()


@every_family
def test_several_calls_can_be_required(model, name):
    """The model chooses how many, and may reach its limit inside a call."""
    model.use(straight(name))

    result, is_ended = model.answer_part(
        asked(QUESTION, tools=(PICK, PING), tool_choice=REQUIRED), max_tokens=300
    )

    calls = result.tool_calls if is_ended else result.tool_calls[:-1]
    assert result.tool_calls
    for call in calls:
        assert call.name in NAMES
        assert call.name == "ping" or is_pick(json.loads(call.arguments))
    assert result.text == "" or not is_ended


@pytest.mark.smoke
@every_family
@table("opens", [False, True])
@table("parallel", [False, True])
@table("choice", [ToolChoice(), REQUIRED, named("strict")])
def test_every_tool_grammar_compiles(refusal, name, opens, parallel, choice):
    tools, forms = (STRICT, DATED, PING), by_name(name).grammar
    grammar = tool_grammar(forms, tools, choice, parallel=parallel, opens_reasoning=opens)

    assert grammar is not None
    assert refusal(grammar) is None
