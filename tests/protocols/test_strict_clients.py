"""openai-python's strict types accept bodies and streams."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.results import build_result
from tests.tables import table
from vinery_serving.core.events import Event
from vinery_serving.core.request import Endpoint

from .clients import item_text, payloads
from .exchanges import (
    CUSTOM_CALL,
    HEAD,
    PLAIN,
    TWO_CALLS,
    TWO_CHOICES,
    WITH_REASONING,
    WITH_REASONING_TWICE,
    answered,
    exchange,
    streamed,
)
from .streams import event_streams
from .test_golden_bytes import EVERY_FIELD

WITH_USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
A_GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
# Other tools and values than those of the golden bytes.
EVERY_ECHO: dict[str, Any] = {
    **{name: value for name, value in EVERY_FIELD.items() if name != "n"},
    "tools": [
        {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}},
        {"type": "function", "name": "b", "strict": True, "description": "B"},
        {"type": "custom", "custom": {"name": "c", "description": "C"}},
        {"type": "custom", "name": "d", "format": A_GRAMMAR},
    ],
    "tool_choice": {"type": "custom", "custom": {"name": "c"}},
    "reasoning": {"effort": "high", "context": "auto"},
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "prompt_cache_retention": "in-memory",
    "prompt_cache_options": {"ttl": "12h"},
    "top_logprobs": 2,
    "top_p": 0,
}
STRICT_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
# The members that Open Responses requires in every response object, null or not, and
# OpenAI's `prompt_cache_retention`.
OPEN_RESPONSES = """
id object created_at completed_at status incomplete_details model previous_response_id
instructions output error tools tool_choice truncation parallel_tool_calls text top_p
presence_penalty frequency_penalty top_logprobs temperature reasoning usage
max_output_tokens max_tool_calls store background service_tier metadata safety_identifier
prompt_cache_key user prompt_cache_retention
"""


def response_events(stream: bytes) -> list[Any]:
    return [
        STRICT_EVENT.validate_json(json.dumps(event), strict=True) for event in payloads(stream)
    ]


@table("events", [PLAIN, WITH_REASONING, TWO_CALLS, CUSTOM_CALL, TWO_CHOICES])
def test_a_chat_body_is_valid(events: list[Event]) -> None:
    chat = exchange(Endpoint.CHAT, service_tier="auto", metadata={"k": "v"})
    body = chat.body(HEAD, build_result(events))

    completion = ChatCompletion.model_validate_json(body, strict=True)

    assert completion.metadata == {"k": "v"}
    usage: Any = completion.usage
    assert (usage.total_tokens, usage.prompt_tokens_details.cached_tokens) == (18, 3)


@table("events", [PLAIN, WITH_REASONING, TWO_CHOICES])
def test_a_completions_body_is_valid(events: list[Event]) -> None:
    Completion.model_validate_json(
        exchange(Endpoint.COMPLETIONS).body(HEAD, build_result(events)), strict=True
    )


@table("fields", [{}, EVERY_ECHO])
@table("events", [PLAIN, WITH_REASONING, TWO_CALLS, CUSTOM_CALL, WITH_REASONING_TWICE])
def test_a_response_body_is_valid(events: list[Event], fields: dict[str, Any]) -> None:
    response = exchange(Endpoint.RESPONSES, **fields)

    Response.model_validate_json(response.body(HEAD, build_result(events)), strict=True)

    extra = {"prompt_cache_options"} & fields.keys()
    assert answered(response, events).keys() == set(OPEN_RESPONSES.split()) | extra


@given(st.data(), st.integers(1, 3))
def test_every_chat_chunk_is_valid_and_the_sdk_adds_them_up(data: st.DataObject, n: int) -> None:
    # The SDK's type of chunks has no calls of custom tools.
    events = data.draw(event_streams(n, only_functions=True))
    chat = exchange(Endpoint.CHAT, n=n, **WITH_USAGE)
    state = ChatCompletionStreamState(input_tools=omit, response_format=omit)

    for chunk in payloads(streamed(chat, events)):
        text = json.dumps(chunk)
        state.handle_chunk(ChatCompletionChunk.model_validate_json(text, strict=True))

    snapshot = json.loads(state.current_completion_snapshot.to_json())
    body = answered(chat, events)
    assert snapshot["usage"] == body["usage"]
    for built, unary in zip(snapshot["choices"], body["choices"], strict=True):
        assert built["finish_reason"] == unary["finish_reason"]
        message = unary["message"]
        assert built["message"]["role"] == "assistant"
        assert built["message"]["content"] == (message["content"] or "")
        assert built["message"].get("reasoning", "") == message.get("reasoning", "")
        assert calls(built["message"]) == calls(message)


def test_the_sdk_adds_up_a_streamed_call_of_a_custom_tool() -> None:
    """The chunks are not validated, as in the SDK's reading of OpenAI's streams."""
    state = ChatCompletionStreamState(input_tools=omit, response_format=omit)
    chat = exchange(Endpoint.CHAT, **WITH_USAGE)

    for chunk in payloads(streamed(chat, CUSTOM_CALL)):
        state.handle_chunk(ChatCompletionChunk.construct(**chunk))

    [choice] = state.current_completion_snapshot.choices
    [returned] = json.loads(choice.message.to_json())["tool_calls"]
    [unary] = answered(chat, CUSTOM_CALL)["choices"][0]["message"]["tool_calls"]
    assert {key: returned[key] for key in unary} == unary


def calls(message: Any) -> list[tuple[str, str, str, str]]:
    return [
        (call["id"], call["type"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]


@given(st.data())
def test_every_response_event_is_valid_and_the_sdk_adds_them_up(data: st.DataObject) -> None:
    events = data.draw(event_streams(1, with_tokens=True))
    response = exchange(Endpoint.RESPONSES, **EVERY_ECHO)
    stream = streamed(response, events)
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    written: dict[int, str] = {}

    for event in response_events(stream):
        for built in state.handle_event(event):
            if hasattr(built, "snapshot"):
                written[built.output_index] = built.snapshot

    output = answered(response, events)["output"]
    assert written == {
        at: item_text(output[at]) for at in written if output[at]["type"] != "reasoning"
    }
