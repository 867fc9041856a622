"""The administrator chooses the output format of a served model."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.conftest import Running, until_in_parts
from tests.system.clients import openai_of, serving
from tests.tables import table

pytestmark = pytest.mark.system

# The name of a model, and its format.
FORMATS = {
    "llama3": "llama3",
    "thinking-devstral": "think+devstral",
    "deepseek": "deepseek_v31",
    "none": "none",
}
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
PICK: Any = {
    "type": "function",
    "function": {
        "name": "pick",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris; }", "London"]}, "is_big": {"type": "boolean"}},
            "required": ["city", "is_big"],
        },
    },
}


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[openai.OpenAI]:
    models = {
        name: ["tiny-chat", "--option", f"output_format={output_format}"]
        for name, output_format in FORMATS.items()
    }
    with serving(running, models):
        yield openai_of(running)


@table(
    "name, thinking",
    [
        ("llama3", False),
        ("deepseek", False),
        ("thinking-devstral", False),
        ("thinking-devstral", True),
    ],
)
def test_a_call_is_made_and_streamed_in_that_format(
    client: openai.OpenAI, name: str, thinking: bool
) -> None:
    asked: Any = {
        "model": name,
        "messages": QUESTION,
        "tools": [PICK],
        "tool_choice": {"type": "function", "function": {"name": "pick"}},
        "extra_body": {"chat_template_kwargs": {"enable_thinking": thinking}},
        "temperature": 0,
    }
    message = client.chat.completions.create(**asked).choices[0].message
    [call] = message.tool_calls or []
    chunks = until_in_parts(
        lambda: client.chat.completions.create(**asked, stream=True),
        lambda chunk: "".join(arguments_in(chunk)),
    )

    assert bool(getattr(message, "reasoning", None)) == thinking
    assert call.type == "function"
    assert call.function.name == "pick"
    assert json.loads(call.function.arguments).keys() == {"city", "is_big"}
    parts = [each for chunk in chunks for each in arguments_in(chunk)]
    assert "".join(parts) == call.function.arguments


def arguments_in(chunk: Any) -> list[str]:
    calls = chunk.choices[0].delta.tool_calls or []
    return [each.function.arguments or "" for each in calls if each.function]


def test_without_a_format_there_is_no_call_nor_can_one_be_demanded(client: openai.OpenAI) -> None:
    [choice] = client.chat.completions.create(model="none", messages=QUESTION, tools=[PICK]).choices

    assert not choice.message.tool_calls
    assert choice.message.content
    assert choice.finish_reason == "stop"

    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="none", messages=QUESTION, tools=[PICK], tool_choice="required"
        )

    assert caught.value.param == "tool_choice"
