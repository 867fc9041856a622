"""The deltas of a stream, joined by a client, equal the unary body."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.results import build_result
from tests.tables import table
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.errors import EngineLost
from vinery_serving.core.events import (
    Event,
    Failed,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from vinery_serving.core.request import Endpoint

from .clients import (
    chat_answer,
    completion_answer,
    frames,
    item_text,
    payloads,
    response_answer,
)
from .exchanges import HEAD, answered, exchange, streamed
from .streams import event_streams

few = settings(max_examples=examples(20))  # they are slow, and for each endpoint
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
DIALECT = st.sampled_from(list(DIALECTS.values()))


@given(st.data(), st.integers(1, 4), DIALECT)
def test_a_chat_stream_adds_up_to_the_body(data: st.DataObject, n: int, dialect: Any) -> None:
    events = data.draw(event_streams(n))
    chat = exchange(Endpoint.CHAT, dialect, n=n, **STREAM)

    streamed_answer = chat_answer(streamed(chat, events))

    assert streamed_answer == {**answered(chat, events), "object": "chat.completion.chunk"}


@given(st.data(), st.integers(1, 3), st.integers(1, 3), DIALECT)
def test_a_completion_stream_adds_up_to_the_body(
    data: st.DataObject, num_prompts: int, n: int, dialect: Any
) -> None:
    events = data.draw(event_streams(num_prompts * n))
    completion = exchange(
        Endpoint.COMPLETIONS, dialect, prompt=["Once"] * num_prompts, n=n, **STREAM
    )

    assert completion_answer(streamed(completion, events)) == answered(completion, events)


IDS: dict[str, Any] = {"return_token_ids": True, "return_prompt_text": True}
# FastDeploy's members have the values of vLLM's, with other names.
NOTHING_GENERATED = {"completion_token_ids": [], "completion_tokens": "", "token_ids": []}


@given(st.data(), st.integers(1, 3))
def test_a_chat_stream_with_token_ids_equals_the_body(data: st.DataObject, n: int) -> None:
    events = data.draw(event_streams(n, num_prompts_with_ids=1))
    chat = exchange(Endpoint.CHAT, n=n, **STREAM, **IDS)

    returned = chat_answer(streamed(chat, events))

    for choice in returned["choices"]:  # a stream has no members for missing tokens
        of_message = {
            key: NOTHING_GENERATED[key] for key in ("completion_token_ids", "completion_tokens")
        }
        choice["message"] = of_message | choice["message"]
        choice.setdefault("token_ids", [])
    assert returned == {**answered(chat, events), "object": "chat.completion.chunk"}


@given(st.data(), st.integers(1, 3), st.integers(1, 2))
def test_a_completion_stream_with_token_ids_equals_the_body(
    data: st.DataObject, num_prompts: int, n: int
) -> None:
    events = data.draw(event_streams(num_prompts * n, num_prompts_with_ids=num_prompts))
    completion = exchange(Endpoint.COMPLETIONS, prompt=["Once"] * num_prompts, n=n, **STREAM, **IDS)

    returned = completion_answer(streamed(completion, events))

    returned["choices"] = [NOTHING_GENERATED | choice for choice in returned["choices"]]
    assert returned == answered(completion, events)


@given(st.data())
def test_the_members_of_both_systems_have_the_same_values(data: st.DataObject) -> None:
    events = data.draw(event_streams(2, num_prompts_with_ids=1))

    chat = answered(exchange(Endpoint.CHAT, n=2, **IDS), events)
    texts = answered(exchange(Endpoint.COMPLETIONS, n=2, **IDS), events)

    for at, choice in enumerate(chat["choices"]):
        message, text = choice["message"], texts["choices"][at]
        assert choice["token_ids"] == message["completion_token_ids"] == text["token_ids"]
        assert chat["prompt_token_ids"] == message["prompt_token_ids"] == text["prompt_token_ids"]
        assert chat["prompt_text"] == message["prompt_tokens"] == text["prompt_tokens"]
        assert message["completion_tokens"] == text["completion_tokens"]


WITH_LOGPROBS: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
PACKED: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
PADDED: dict[str, Any] = {"stream": True, "stream_options": {"include_obfuscation": True}}


@given(st.data(), st.integers(1, 4), DIALECT, st.sampled_from([{}, WITH_LOGPROBS, PACKED, PADDED]))
def test_a_response_stream_adds_up_to_the_body(
    data: st.DataObject, n: int, dialect: Any, fields: dict[str, Any]
) -> None:
    events = data.draw(event_streams(n, with_tokens=fields is WITH_LOGPROBS))
    response = exchange(Endpoint.RESPONSES, dialect, n=n, **{**STREAM, **fields})

    assert response_answer(streamed(response, events)) == answered(response, events)


@few
@given(st.data())
def test_choices_of_a_response_are_streamed_in_their_order(data: st.DataObject) -> None:
    events = data.draw(event_streams(3))
    each = [[event for event in events if getattr(event, "choice", at) == at] for at in range(3)]
    texts = [choice.text for choice in build_result(events).choices]

    output = answered(exchange(Endpoint.RESPONSES, n=3), events)["output"]

    assistant = [item_text(item) for item in output if item["type"] == "message"]
    assert "".join(assistant) == "".join(texts)
    assert len(output) == sum(len(build_result(one).choices[0].items) for one in each)


@table(
    "endpoint, asked",
    [
        (Endpoint.CHAT, {}),
        (Endpoint.CHAT, {"functions": [{"name": "f"}]}),
        (Endpoint.COMPLETIONS, {}),
        (Endpoint.RESPONSES, {}),
    ],
)
@few
@given(st.data())
def test_padded_deltas_have_few_sizes_and_the_same_text(
    endpoint: Endpoint, asked: dict[str, Any], data: st.DataObject
) -> None:
    events = data.draw(event_streams(2, only_functions="functions" in asked))

    plain, padded = (
        streamed(exchange(endpoint, n=2, **asked, **fields), events)
        for fields in ({"stream": True}, PADDED)
    )

    deltas = [block for block in padded.split(b"\n\n") if b'"obfuscation"' in block]
    assert all((len(block) - block.index(b"data: {") + 2) % 32 == 0 for block in deltas)
    returned = [
        {key: value for key, value in payload.items() if key != "obfuscation"}
        for payload in payloads(padded)
    ]
    assert returned == payloads(plain)


@table("endpoint", Endpoint)
@few
@given(st.data())
def test_a_failed_stream_ends_with_its_error(endpoint: Endpoint, data: st.DataObject) -> None:
    whole = data.draw(event_streams(1))
    events: list[Event] = whole[: data.draw(st.integers(0, len(whole) - 1))]
    failed = Failed(EngineLost("The engine ended."))

    stream = streamed(exchange(endpoint, stream=True), [*events, failed])

    *_, last = payloads(stream)
    returned = last["response"] if endpoint is Endpoint.RESPONSES else last
    assert returned["error"]["message"] == "The engine ended."


@given(st.data())
def test_a_failed_response_keeps_its_output(data: st.DataObject) -> None:
    whole = data.draw(event_streams(1))
    events = whole[: data.draw(st.integers(1, len(whole) - 2))]
    response = exchange(Endpoint.RESPONSES, stream=True)

    stream = streamed(response, [*events, Failed(EngineLost("The engine ended."))])

    error, failed = payloads(stream)[-2:]
    assert error["type"] == "error"
    assert failed["response"]["status"] == "failed"
    added = [event for event in payloads(stream) if event["type"].endswith("item.added")]
    kept = [item["id"] for item in failed["response"]["output"]]
    assert kept == [event["item"]["id"] for event in added]


@given(st.data())
def test_the_name_of_a_response_event_is_its_type(data: st.DataObject) -> None:
    events = data.draw(event_streams(1))

    *named, _ = frames(streamed(exchange(Endpoint.RESPONSES, stream=True), events))

    assert [frame.name for frame in named] == [frame.payload["type"] for frame in named]
    assert all("error" not in frame.payload for frame in named)


@table("endpoint", Endpoint)
@few
@given(st.data())
def test_no_client_splits_a_line(endpoint: Endpoint, data: st.DataObject) -> None:
    stream = streamed(exchange(endpoint, stream=True), data.draw(event_streams(1)))

    assert stream.decode().splitlines() == stream.decode().split("\n")[:-1]


def test_a_response_never_puts_arguments_into_the_wrong_item() -> None:
    encoder = exchange(Endpoint.RESPONSES, stream=True).encoder(HEAD)
    for event in (Started(), ToolCallStarted(0, 0, "call_a", "f"), TextDelta(0, "Hi")):
        encoder.feed(event)

    with pytest.raises(ValueError, match="not the open item"):
        encoder.feed(ToolCallDelta(0, 0, "{}"))
