"""Custom tools through openai-python, with strict response validation."""

import json
import re
from typing import Any

import openai

from .tiny_chat import MODEL, WEATHER_QUESTION, lenient

# With characters that JSON escapes.
CITY = r'"(?:Paris|London)"\n[1-3]'
# So long that a busy machine cannot send all of it at once.
NUMBERS = r"([0-9]{2} ){150}"
SUM = 'start: "sum" "\\n" DIGIT ("+" DIGIT)~1..2 ";"\nDIGIT: "1".."3"'


def nested(name: str, syntax: str, definition: str) -> Any:
    grammar = {"syntax": syntax, "definition": definition}
    custom = {"name": name, "format": {"type": "grammar", "grammar": grammar}}
    return {"type": "custom", "custom": {**custom, "description": "Take a text"}}


def flat(name: str, syntax: str, definition: str) -> Any:
    format_ = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"type": "custom", "name": name, "description": "Take a text", "format": format_}


NESTED_CHOICE: Any = {"type": "custom", "custom": {"name": "look_up"}}
FLAT_CHOICE: Any = {"type": "custom", "name": "look_up"}


def chat(client: openai.OpenAI, *tools: Any, turns: Any = WEATHER_QUESTION, **fields: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=turns, tools=tools, **fields)


def respond(
    client: openai.OpenAI, *tools: Any, turns: Any = WEATHER_QUESTION, **fields: Any
) -> Any:
    return client.responses.create(model=MODEL, input=turns, tools=tools, **fields)


def test_a_call_that_is_required_or_chosen_fits_its_format(client: openai.OpenAI) -> None:
    tools = nested("look_up", "regex", CITY), nested("add", "lark", SUM)

    [choice] = chat(client, *tools, tool_choice=NESTED_CHOICE).choices

    [call] = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls"
    assert (call.type, call.custom.name) == ("custom", "look_up")
    assert re.fullmatch(CITY, call.custom.input)

    answer = chat(client, nested("get_weather", "regex", CITY))

    [call] = answer.choices[0].message.tool_calls
    assert call.type == "custom"
    assert re.fullmatch(CITY, call.custom.input)


def test_a_streamed_call_adds_up_to_its_text(client: openai.OpenAI) -> None:
    tool = nested("look_up", "regex", NUMBERS)
    chunks = chat(lenient(client), tool, tool_choice=NESTED_CHOICE, stream=True)

    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]

    assert (calls[0].type, calls[0].custom) == ("custom", {"name": "look_up", "input": ""})
    assert all(call.index == 0 for call in calls)
    assert len(calls) > 2, "the text is returned as it is written"
    assert re.fullmatch(NUMBERS, "".join(call.custom["input"] for call in calls))


def test_a_response_calls_a_custom_tool_and_uses_its_output(client: openai.OpenAI) -> None:
    tool = flat("look_up", "regex", CITY)

    response = respond(client, tool, tool_choice=FLAT_CHOICE)

    [item] = response.output
    assert item.type == "custom_tool_call"
    assert re.fullmatch(CITY, item.input)
    assert item.id.startswith("ctc_")
    [echoed] = response.tools
    assert echoed.model_dump(exclude_none=True, by_alias=True) == tool
    assert response.tool_choice.model_dump() == FLAT_CHOICE
    output: Any = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "Sunny."}
    turns = [*WEATHER_QUESTION, item.model_dump(exclude_none=True), output]
    assert respond(client, tool, turns=turns, max_output_tokens=16).error is None


def test_a_tool_in_a_namespace_is_called_by_both_names(client: openai.OpenAI) -> None:
    """Agents group the tools of a server in this form, and find them only by both names."""
    city = {"properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]}
    parameters = {"type": "object", **city}
    get = {"type": "function", "name": "get", "parameters": parameters, "strict": True}
    group: Any = {"type": "namespace", "name": "mcp__weather__", "description": "The weather."}
    group["tools"] = [get, flat("look_up", "regex", CITY)]
    for name, kind in (("get", "function_call"), ("look_up", "custom_tool_call")):
        choice: Any = {"type": "function", "name": name}
        [item] = respond(client, group, tool_choice=choice).output

        assert item.type == kind
        assert (item.name, item.namespace) == (name, "mcp__weather__")
        if kind == "function_call":
            assert json.loads(item.arguments) == {"city": "Paris"}
