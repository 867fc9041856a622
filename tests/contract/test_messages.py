"""Messages through Anthropic's client, with strict response validation."""

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from tests.conftest import Running, until_in_parts
from tests.tables import table

from .tiny_chat import CONTEXT, GET_WEATHER, MODEL, PARIS, QUESTION, WEATHER_QUESTION

WEATHER: Any = {
    "name": GET_WEATHER["name"],
    "description": GET_WEATHER["description"],
    "input_schema": GET_WEATHER["parameters"],
}
SHOWN = {"type", "text", "thinking", "signature"}


@pytest.fixture
def claude(running: Running, tree: str) -> anthropic.Anthropic:
    """The base URL has no version: the client adds /v1."""
    return anthropic.Anthropic(
        base_url=running.base_url if tree == "v1" else f"{running.base_url}/{tree}",
        api_key=running.api_key,
        max_retries=0,
        timeout=60,
        _strict_response_validation=True,
    )


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def num_read(message: anthropic.types.Message) -> int:
    return message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


def least(**fields: Any) -> Any:
    return {"model": MODEL, "max_tokens": 64, "messages": QUESTION, **fields}


def asked(claude: anthropic.Anthropic, **fields: Any) -> anthropic.types.Message:
    return claude.messages.create(**least(**fields))


def streamed(claude: anthropic.Anthropic, **fields: Any) -> anthropic.types.Message:
    with claude.messages.stream(**least(**fields)) as stream:
        return stream.get_final_message()


def test_a_question_is_answered_and_streamed_with_the_same_text(
    claude: anthropic.Anthropic,
) -> None:
    message = asked(claude)

    assert text_of(message) == PARIS
    assert (message.role, message.model, message.stop_reason) == ("assistant", MODEL, "end_turn")
    assert message.id.startswith("msg_")
    assert message.usage.output_tokens > 5
    assert num_read(message) > 5
    assert (message._request_id or "").startswith("req_")

    finals: list[anthropic.types.Message] = []

    def texts() -> Iterator[str]:
        with claude.messages.stream(**least()) as stream:
            yield from stream.text_stream
            finals.append(stream.get_final_message())

    parts = until_in_parts(texts, bool)

    assert "".join(parts) == text_of(finals[-1]) == PARIS
    assert finals[-1].stop_reason == "end_turn"
    assert finals[-1].usage.output_tokens == message.usage.output_tokens


def test_the_events_of_a_stream_come_in_order(claude: anthropic.Anthropic) -> None:
    system = "Be kind. " * 60
    for _ in range(3):  # the last finds the prompt cached
        events = list(claude.messages.create(**least(stream=True, system=system)))

    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    start, delta = events[0].message.usage, events[-2].usage
    assert start.input_tokens == delta.input_tokens
    assert start.cache_read_input_tokens == delta.cache_read_input_tokens
    assert (delta.cache_read_input_tokens or 0) > 50


def test_a_limit_and_a_stop_end_an_answer_and_a_last_turn_begins_it(
    claude: anthropic.Anthropic,
) -> None:
    cut = asked(claude, max_tokens=2)
    stopped = asked(claude, stop_sequences=[" Paris"])

    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " Paris")
    assert text_of(stopped) == PARIS.partition(" Paris")[0]

    begun = {"role": "assistant", "content": "The capital of"}

    assert text_of(asked(claude, messages=[*QUESTION, begun])).strip() == "France is Paris."


# None: as many tokens as there is room for.
@table("max_tokens, reason", [(4096, "model_context_window_exceeded"), (None, "max_tokens")])
def test_an_answer_that_fills_the_context_names_it_unless_the_limit_is_as_near(
    claude: anthropic.Anthropic, max_tokens: int | None, reason: str
) -> None:
    long: Any = [{"role": "user", "content": "word " * 1950}]
    room = CONTEXT - claude.messages.count_tokens(model=MODEL, messages=long).input_tokens
    fields: Any = {
        "max_tokens": max_tokens or room,
        "messages": long,
        "extra_body": {"ignore_eos": True},
    }

    for message in (asked(claude, **fields), streamed(claude, **fields)):
        assert message.stop_reason == reason
        assert message.usage.output_tokens == room > 0


def test_a_tool_is_called_and_its_result_used(claude: anthropic.Anthropic) -> None:
    fields: Any = {"messages": WEATHER_QUESTION, "tools": [WEATHER]}
    message = asked(claude, **fields)

    [call] = [block for block in message.content if block.type == "tool_use"]
    [same] = [block for block in streamed(claude, **fields).content if block.type == "tool_use"]
    assert message.stop_reason == "tool_use"
    assert (call.name, call.input) == (same.name, same.input) == ("get_weather", {"city": "Paris"})
    assert call.id.startswith("toolu_")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny, 20 degrees"}
    turns = [
        *WEATHER_QUESTION,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result]},
    ]
    answer = asked(claude, messages=turns, tools=[WEATHER])
    assert answer.stop_reason == "end_turn"
    assert text_of(answer)


def test_thinking_comes_in_blocks_of_its_own(claude: anthropic.Anthropic) -> None:
    question: Any = [{"role": "user", "content": "What is 2 plus 3?"}]
    fields: Any = {
        "messages": question,
        "max_tokens": 200,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }

    message, final = asked(claude, **fields), streamed(claude, **fields)

    assert [block.type for block in message.content] == ["thinking", "text"]
    for part, whole in zip(final.content, message.content, strict=True):
        assert part.model_dump(include=SHOWN) == whole.model_dump(include=SHOWN)
    earlier = {"role": "assistant", "content": message.content}
    assert text_of(asked(claude, messages=[*question, earlier, *QUESTION]))


def test_the_tokens_of_a_prompt_are_counted_exactly(claude: anthropic.Anthropic) -> None:
    fields: Any = {"system": "Be kind.", "tools": [WEATHER], "messages": WEATHER_QUESTION}

    counted = claude.messages.count_tokens(model=MODEL, **fields).input_tokens

    assert counted == num_read(asked(claude, **fields))


def test_the_models_are_listed(claude: anthropic.Anthropic) -> None:
    [model] = claude.models.list().data

    assert (model.id, model.type) == (MODEL, "model")
    assert claude.models.retrieve(MODEL).max_input_tokens == CONTEXT


def test_each_refusal_is_the_error_of_the_client(
    claude: anthropic.Anthropic, running: Running
) -> None:
    stranger = anthropic.Anthropic(base_url=running.base_url, api_key="no key", max_retries=0)

    with pytest.raises(anthropic.BadRequestError, match="`messages` must not be empty") as bad:
        asked(claude, messages=[])
    with pytest.raises(anthropic.NotFoundError) as unknown:
        asked(claude, model="nothing")
    with pytest.raises(anthropic.AuthenticationError) as unauthorized:
        asked(stranger)
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("nothing")
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.list()

    for caught, kind in (
        (bad, "invalid_request_error"),
        (unknown, "not_found_error"),
        (unauthorized, "authentication_error"),
    ):
        body: Any = caught.value.body
        assert (body["type"], body["error"]["type"]) == ("error", kind)
        assert body["request_id"] == caught.value.request_id


def test_a_client_without_a_version_gets_the_same_errors(raw: httpx.Client, tree: str) -> None:
    for path in ("messages", "messages/count_tokens"):
        response = raw.post(f"/{tree}/{path}", content=b"{")

        assert response.status_code == 400
        assert response.json()["type"] == "error"
        assert response.headers["request-id"] == response.json()["request_id"]
