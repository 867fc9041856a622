"""The deprecated form of tools: `functions` in the request, one `function_call` in the answer."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.results import build_result
from tests.tables import table
from vinery_serving.core.request import Conversation, Endpoint, Tool, ToolChoice, ToolMode

from .clients import chat_answer, payloads
from .exchanges import HEAD, PLAIN, TWO_CALLS, answered, exchange, streamed
from .streams import event_streams

FUNCTIONS = [{"name": "get_weather"}, {"name": "get_time"}]
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def deprecated(**fields: Any) -> Any:
    return exchange(Endpoint.CHAT, functions=FUNCTIONS, **fields)


@table(
    "value, choice",
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice(ToolMode.NONE)),
        ({"name": "get_time"}, ToolChoice(ToolMode.NAMED, "get_time")),
    ],
)
def test_a_response_calls_one_of_several_tools(value: Any, choice: ToolChoice) -> None:
    prompt = deprecated(function_call=value).request.prompt

    assert isinstance(prompt, Conversation)
    assert prompt.tools == (Tool("get_weather"), Tool("get_time"))
    assert prompt.tool_choice == choice
    assert not prompt.parallel_tool_calls


def test_the_answer_has_one_call_without_an_id() -> None:
    [choice] = answered(deprecated(), TWO_CALLS)["choices"]

    assert choice["message"]["function_call"] == {
        "name": "get_weather",
        "arguments": '{"city":"Oslo"}',
    }
    assert choice["message"]["content"] is None
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"


def test_an_answer_without_a_call_has_text() -> None:
    assert answered(deprecated(), PLAIN) == answered(exchange(Endpoint.CHAT), PLAIN)


@table("events", [PLAIN, TWO_CALLS])
def test_strict_clients_take_it(events: Any) -> None:
    ChatCompletion.model_validate_json(deprecated().body(HEAD, build_result(events)), strict=True)
    for chunk in payloads(streamed(deprecated(**STREAM), events)):
        ChatCompletionChunk.model_validate(chunk)


@given(st.data(), st.integers(1, 3))
def test_the_stream_adds_up_to_the_body(data: st.DataObject, n: int) -> None:
    events = data.draw(event_streams(n, only_functions=True))
    chat = deprecated(n=n, **STREAM)

    streamed_answer = chat_answer(streamed(chat, events))

    assert streamed_answer == {**answered(chat, events), "object": "chat.completion.chunk"}
