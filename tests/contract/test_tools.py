"""Tools of every form through openai-python, with strict response validation."""

import json
from typing import Any

import openai

from tests.tables import table

from .tiny_chat import GET_WEATHER, MODEL, SUNNY, SUNNY_IN_PARIS, WEATHER_QUESTION

UP_TO_3 = {"n": {"type": "integer", "minimum": 1, "maximum": 3}}
PICKED = {"type": "object", "properties": UP_TO_3, "required": ["n"]}
PICK: dict[str, Any] = {"name": "pick", "parameters": PICKED}
NESTED: Any = [{"type": "function", "function": function} for function in (GET_WEATHER, PICK)]


def test_a_deprecated_function_is_called_and_its_output_used(client: openai.OpenAI) -> None:
    fields: Any = {"model": MODEL, "functions": [GET_WEATHER]}
    [choice] = client.chat.completions.create(messages=WEATHER_QUESTION, **fields).choices

    assert choice.finish_reason == "function_call"
    assert choice.message.tool_calls is None
    call = choice.message.function_call
    assert call is not None
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    called = choice.message.model_dump(exclude_none=True)
    output = {"role": "function", "name": "get_weather", "content": SUNNY}
    turns: Any = [*WEATHER_QUESTION, called, output]
    returned = client.chat.completions.create(messages=turns, **fields)
    assert returned.choices[0].message.content == SUNNY_IN_PARIS


def test_a_deprecated_function_can_be_streamed_and_required(client: openai.OpenAI) -> None:
    asked: Any = {"functions": [GET_WEATHER, PICK], "function_call": {"name": "pick"}}
    chunks = client.chat.completions.create(
        model=MODEL, messages=WEATHER_QUESTION, stream=True, **asked
    )
    choices = [chunk.choices[0] for chunk in chunks]

    calls = [call for choice in choices if (call := choice.delta.function_call)]
    assert calls[0].name == "pick"
    assert json.loads("".join(call.arguments or "" for call in calls))["n"] in (1, 2, 3)
    assert choices[-1].finish_reason == "function_call"


@table("mode", ["auto", "required"])
def test_only_a_tool_that_is_allowed_is_called(client: openai.OpenAI, mode: str) -> None:
    """Without a tool choice the model would call the other tool."""
    allowed: Any = {"mode": mode, "tools": [{"type": "function", "function": {"name": "pick"}}]}
    choice: Any = {"type": "allowed_tools", "allowed_tools": allowed}

    asked: Any = {"model": MODEL, "messages": WEATHER_QUESTION, "parallel_tool_calls": False}
    answer = client.chat.completions.create(**asked, tools=NESTED, tool_choice=choice)

    [call] = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "pick"
