"""responses through openai-python, with strict response validation."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.contract.tiny_chat import GET_WEATHER, MODEL, PARIS

pytestmark = pytest.mark.system

WEATHER: Any = {"type": "function", "strict": False, **GET_WEATHER}


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


def test_a_tool_is_called_and_its_output_used(client: openai.OpenAI) -> None:
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


def test_every_field_is_echoed_and_the_raw_answer_has_its_headers(client: openai.OpenAI) -> None:
    raw = client.responses.with_raw_response.create(
        model=MODEL,
        input="What is the capital of France?",
        metadata={"team": "a"},
        include=["reasoning.encrypted_content", "web_search_call.action.sources"],
        max_tool_calls=3,
        parallel_tool_calls=False,
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        safety_identifier="s",
        service_tier="flex",
        store=False,
        text={"verbosity": "low"},
        truncation="auto",
        user="u",
    )
    response = raw.parse()

    assert raw.headers["x-request-id"]
    assert response.output_text == PARIS
    assert (response.metadata, response.user) == ({"team": "a"}, "u")
    assert (response.max_tool_calls, response.parallel_tool_calls) == (3, False)
    assert (response.prompt_cache_key, response.prompt_cache_retention) == ("k", "24h")
    assert (response.safety_identifier, response.service_tier) == ("s", "default")
    assert response.text is not None
    assert (response.text.verbosity, response.truncation) == ("low", "auto")


def test_a_response_repeats_openais_defaults(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="What is the capital of France?")

    assert response.reasoning is not None
    assert (response.reasoning.effort, response.reasoning.summary) == (None, None)
    assert (response.temperature, response.top_p, response.top_logprobs) == (1.0, 1.0, 0)
    assert (response.tool_choice, response.tools, response.parallel_tool_calls) == (
        "auto",
        [],
        True,
    )
    assert (response.truncation, response.background, response.metadata) == (
        "disabled",
        False,
        {},
    )
    assert response.text is not None
    assert response.text.format is not None
    assert (response.text.format.type, response.text.verbosity) == ("text", "medium")


def test_several_answers_are_several_messages(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "input": "What is the capital of France?", "extra_body": {"n": 3}}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        for _ in stream:
            pass
        returned = stream.get_final_response()

    for response in (whole, returned):
        assert [item.type for item in response.output] == ["message"] * 3
        assert response.output_text == PARIS * 3
        assert len({item.id for item in response.output}) == 3


def test_reasoning_may_be_sent_back_as_an_opaque_string(client: openai.OpenAI) -> None:
    question = {"role": "user", "content": "What is the capital of France?"}
    first = client.responses.create(
        model=MODEL,
        input=[question],
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
        store=False,
    )
    reasoning_item, _ = first.output
    assert reasoning_item.type == "reasoning"
    assert reasoning_item.encrypted_content
    packed = reasoning_item.model_dump(include={"type", "id", "encrypted_content"}) | {
        "summary": []
    }
    assistant = {"role": "assistant", "content": first.output_text}

    second = client.responses.create(
        model=MODEL, input=[question, packed, assistant, {"role": "user", "content": "Hello!"}]
    )

    assert second.status == "completed"


def test_the_model_sees_calls_of_other_tools(client: openai.OpenAI) -> None:
    question = {"role": "user", "content": "What is the weather in Paris?"}
    items = [
        {"type": "custom_tool_call", "call_id": "call_1", "name": "get_weather", "input": "Paris"},
        {
            "type": "custom_tool_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": '{"temperature": 21, "condition": "sunny"}'}],
        },
    ]

    response = client.responses.create(model=MODEL, tools=[WEATHER], input=[question, *items])

    assert "21 degrees and sunny" in response.output_text


LONG = "Tell me about the weather, the capital of France and the number forty. " * 20


def test_truncation_auto_answers_a_long_conversation(client: openai.OpenAI) -> None:
    history = [
        {"role": role, "content": f"{at}: {LONG}"}
        for at in range(20)
        for role in ("user", "assistant")
    ]
    asked = {
        "model": MODEL,
        "instructions": "You are a helpful assistant.",
        "input": [*history, {"role": "user", "content": "What is the capital of France?"}],
        "max_output_tokens": 64,
    }

    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**asked)
    response = client.responses.create(**asked, truncation="auto")

    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "input"
    assert response.usage is not None
    counted = client.responses.input_tokens.count(
        model=MODEL, instructions=asked["instructions"], input=asked["input"][-1:]
    )
    assert counted.input_tokens < response.usage.input_tokens <= 2048 - 64


def test_counted_tokens_are_those_that_are_used(client: openai.OpenAI) -> None:
    asked = {
        "model": MODEL,
        "instructions": "You are a helpful assistant.",
        "input": "What is the weather in Paris?",
        "tools": [WEATHER],
    }

    counted = client.responses.input_tokens.count(**asked)
    response = client.responses.create(**asked)

    assert counted.object == "response.input_tokens"
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens
    with pytest.raises(openai.NotFoundError):
        client.responses.input_tokens.count(model="unknown", input="Hi")
    with pytest.raises(openai.BadRequestError, match="`input` is required"):
        client.responses.input_tokens.count(model=MODEL)


def test_a_padded_stream_has_the_same_text(client: openai.OpenAI) -> None:
    stream = client.responses.create(
        model=MODEL,
        input="What is the capital of France?",
        stream=True,
        stream_options={"include_obfuscation": True},
    )

    deltas = [event for event in stream if event.type == "response.output_text.delta"]

    assert "".join(event.delta for event in deltas) == PARIS
    assert all(event.model_extra and event.model_extra["obfuscation"] for event in deltas[:1])


def test_no_response_is_stored(client: openai.OpenAI) -> None:
    created = client.responses.create(model=MODEL, input="What is the capital of France?")
    asked = [
        lambda: client.responses.retrieve(created.id),
        lambda: client.responses.delete(created.id),
        lambda: client.responses.cancel(created.id),
        lambda: client.responses.input_items.list(created.id),
    ]

    for ask in asked:
        with pytest.raises(
            openai.NotFoundError, match=f"Response with id '{created.id}' not found"
        ):
            ask()
    with pytest.raises(openai.BadRequestError, match="it stores no responses"):
        client.responses.create(model=MODEL, input="Hi", previous_response_id=created.id)


def test_each_token_has_logprobs_whole_and_streamed(client: openai.OpenAI) -> None:
    asked = {
        "model": MODEL,
        "input": "What is the capital of France?",
        "temperature": 0,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
    }

    (message,) = client.responses.create(**asked).output
    events = list(client.responses.create(**asked, stream=True))

    (part,) = message.content
    assert "".join(each.token for each in part.logprobs) == part.text == PARIS
    for each in part.logprobs:
        assert each.logprob <= 0
        assert bytes(each.bytes).decode() == each.token
        assert each.top_logprobs[0].token == each.token
        assert len(each.top_logprobs) == 2
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    streamed = [each for event in deltas for each in event.logprobs]
    assert [each.token for each in streamed] == [each.token for each in part.logprobs]
    assert events[-1].response.output[0].content[0].logprobs == part.logprobs
