"""responses through openai-python, with strict response validation."""

from __future__ import annotations

import json

import openai
import pytest
from openai.types.responses import FunctionToolParam

pytestmark = pytest.mark.system

MODEL = "tiny-chat"
PARIS = "The capital of France is Paris."
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def test_it_answers_a_plain_string(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="What is the capital of France?")

    assert response.output_text == PARIS
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.output_tokens > 5
    assert response.usage.input_tokens_details.cached_tokens >= 0
    assert response.completed_at is not None
    assert response.completed_at >= response.created_at


def test_the_events_of_a_stream_come_in_order(client: openai.OpenAI) -> None:
    events = list(
        client.responses.create(model=MODEL, input="What is the capital of France?", stream=True)
    )

    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_the_streaming_helper_accumulates(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="What is the capital of France?") as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()

    assert final.output_text == PARIS


def test_instructions_and_typed_messages_are_understood(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model=MODEL,
        instructions="You are a helpful assistant.",
        input=[
            {"role": "user", "content": "My name is Alice."},
            {"role": "assistant", "content": "Nice to meet you, Alice!"},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "What is my name?"}],
            },
        ],
    )

    assert response.output_text == "Your name is Alice."


def test_a_tool_is_called_and_its_answer_told(client: openai.OpenAI) -> None:
    question = {"role": "user", "content": "What is the weather in Paris?"}
    first = client.responses.create(model=MODEL, input=[question], tools=[WEATHER])
    (call,) = first.output
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"city": "Paris"}

    second = client.responses.create(
        model=MODEL,
        tools=[WEATHER],
        input=[
            question,
            call.model_dump(exclude_none=True),
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": '{"temperature": 21, "condition": "sunny"}',
            },
        ],
    )

    assert second.output_text == "It is 21 degrees and sunny in Paris."


def test_a_streamed_tool_call_has_its_own_events(client: openai.OpenAI) -> None:
    with client.responses.stream(
        model=MODEL, input="What is the weather in Paris?", tools=[WEATHER]
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()

    assert "response.function_call_arguments.delta" in kinds
    assert "response.function_call_arguments.done" in kinds
    assert json.loads(final.output[0].arguments) == {"city": "Paris"}


def test_reasoning_is_an_item_of_its_own(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model=MODEL, input="What is the capital of France?", reasoning={"effort": "low"}
    )

    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert "Paris" in response.output_text
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens > 0


def test_an_answer_cut_by_its_limit_is_incomplete(client: openai.OpenAI) -> None:
    if "/v3" in str(client.base_url):
        client = client.with_options()
        client._strict_response_validation = False  # OVMS's word is not in OpenAI's enum
    response = client.responses.create(
        model=MODEL, input="What is the capital of France?", max_output_tokens=3
    )

    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    expected = "max_tokens" if "/v3" in str(client.base_url) else "max_output_tokens"
    assert response.incomplete_details.reason == expected
