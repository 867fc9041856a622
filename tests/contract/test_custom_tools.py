"""Custom tools through openai-python, with strict response validation."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from tests.conftest import until_in_parts

pytestmark = pytest.mark.system

MODEL = "tiny-chat"
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
# It contains characters that JSON escapes.
CITY = r'"(?:Paris|London)"\n[1-3]'
# So long that a busy machine cannot send all of it at once.
NUMBERS = r"([0-9]{2} ){150}"
SUM = 'start: "sum" "\\n" DIGIT ("+" DIGIT)~1..2 ";"\nDIGIT: "1".."3"'
AS_SUM = re.compile(r"sum\n[1-3](\+[1-3]){1,2};")


def nested(name: str, syntax: str, definition: str) -> Any:
    grammar = {"syntax": syntax, "definition": definition}
    custom = {"name": name, "format": {"type": "grammar", "grammar": grammar}}
    return {"type": "custom", "custom": {**custom, "description": "Take a text"}}


def flat(name: str, syntax: str, definition: str) -> Any:
    format_ = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"type": "custom", "name": name, "description": "Take a text", "format": format_}


def test_a_required_call_fits_its_regular_expression(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        tools=[nested("look_up", "regex", CITY), nested("add", "lark", SUM)],
        tool_choice={"type": "custom", "custom": {"name": "look_up"}},
    )

    [choice] = answer.choices
    [call] = choice.message.tool_calls or []
    assert choice.finish_reason == "tool_calls"
    assert call.type == "custom"
    assert call.custom.name == "look_up"
    assert re.fullmatch(CITY, call.custom.input)


def test_a_required_call_fits_its_lark_grammar_and_is_answered(client: openai.OpenAI) -> None:
    tools = [nested("add", "lark", SUM)]
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
    )
    message = answer.choices[0].message
    [call] = message.tool_calls or []
    assert call.type == "custom"
    assert AS_SUM.fullmatch(call.custom.input)

    returned = client.chat.completions.create(
        model=MODEL,
        tools=tools,
        messages=[
            *QUESTION,
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "4"},
        ],
        max_tokens=8,
    )

    assert returned.choices[0].message.role == "assistant"


def test_a_streamed_call_adds_up_to_its_text(client: openai.OpenAI) -> None:
    """The SDK's type of chunks has no custom calls, so this client is not strict."""
    loose = openai.OpenAI(base_url=client.base_url, api_key=client.api_key)
    chunks = loose.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        tools=[nested("look_up", "regex", NUMBERS)],
        tool_choice={"type": "custom", "custom": {"name": "look_up"}},
        stream=True,
    )

    calls: list[Any] = [
        call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()
    ]

    assert (calls[0].type, calls[0].custom) == ("custom", {"name": "look_up", "input": ""})
    assert all(call.index == 0 for call in calls)
    assert len(calls) > 2, "the text is returned as it is written"
    assert re.fullmatch(NUMBERS, "".join(call.custom["input"] for call in calls))


def test_a_call_that_the_model_chooses_fits_its_format(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, tools=[nested("get_weather", "regex", CITY)]
    )

    [call] = answer.choices[0].message.tool_calls or []
    assert call.type == "custom"
    assert re.fullmatch(CITY, call.custom.input)


def test_a_response_calls_a_custom_tool_and_uses_its_output(client: openai.OpenAI) -> None:
    tools = [flat("look_up", "regex", CITY)]
    choice: Any = {"type": "custom", "name": "look_up"}

    response = client.responses.create(model=MODEL, input=QUESTION, tools=tools, tool_choice=choice)

    [item] = response.output
    assert item.type == "custom_tool_call"
    assert re.fullmatch(CITY, item.input)
    assert (item.id or "").startswith("ctc_")
    [echoed] = response.tools
    assert echoed.model_dump(exclude_none=True, by_alias=True) == tools[0]
    assert response.tool_choice.model_dump() == choice  # type: ignore[union-attr]

    output: Any = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "Sunny."}
    returned = client.responses.create(
        model=MODEL,
        tools=tools,
        input=[*QUESTION, item.model_dump(exclude_none=True), output],
        max_output_tokens=16,
    )
    assert returned.error is None


def test_a_streamed_response_has_the_input_of_a_custom_tool_in_deltas(
    client: openai.OpenAI,
) -> None:
    events = until_in_parts(
        lambda: client.responses.create(
            model=MODEL,
            input=QUESTION,
            tools=[flat("look_up", "regex", CITY)],
            tool_choice={"type": "custom", "name": "look_up"},
            stream=True,
        ),
        lambda event: event.type == "response.custom_tool_call_input.delta",
    )

    deltas = [
        event.delta for event in events if event.type == "response.custom_tool_call_input.delta"
    ]
    [done] = [event for event in events if event.type == "response.custom_tool_call_input.done"]
    assert "".join(deltas) == done.input
    assert re.fullmatch(CITY, done.input)
    last = events[-1]
    assert last.type == "response.completed"
    [item] = last.response.output
    assert item.type == "custom_tool_call"
    assert item.input == done.input


@pytest.mark.parametrize(
    ("syntax", "definition", "reason"),
    [
        ("regex", "a(?=b)", "it uses lookahead or lookbehind"),
        ("lark", "start: word", "there is no rule or terminal named word"),
    ],
)
def test_an_unsupported_grammar_is_refused(
    client: openai.OpenAI, syntax: str, definition: str, reason: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=reason) as caught:
        client.responses.create(
            model=MODEL, input=QUESTION, tools=[flat("look_up", syntax, definition)]
        )

    assert caught.value.param == "tools[0].format.definition"
    assert caught.value.code == "invalid_grammar"


def test_a_tool_in_a_namespace_is_called_by_both_names(client: openai.OpenAI) -> None:
    """Agents group the tools of a server in this form, and find them only by both names."""
    city: Any = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris"]}},
        "required": ["city"],
    }
    group: Any = {
        "type": "namespace",
        "name": "mcp__weather__",
        "description": "The weather of all countries.",
        "tools": [
            {"type": "function", "name": "get", "parameters": city, "strict": True},
            flat("look_up", "regex", CITY),
        ],
    }
    found: list[tuple[str, str | None]] = []
    for name in ("get", "look_up"):
        choice: Any = {"type": "function", "name": name}
        response = client.responses.create(
            model=MODEL, input=QUESTION, tools=[group], tool_choice=choice
        )
        [item] = response.output
        assert item.type in ("function_call", "custom_tool_call")
        found.append((item.name, item.namespace))
        if item.type == "function_call":
            assert json.loads(item.arguments) == {"city": "Paris"}

    assert found == [("get", "mcp__weather__"), ("look_up", "mcp__weather__")]
