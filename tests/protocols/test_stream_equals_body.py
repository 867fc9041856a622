"""The deltas of a stream, joined by a client, equal the unary body."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.core import events as ev
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.errors import EngineLost
from vinery_serving.core.request import Endpoint
from vinery_serving.core.tasks import GENERATION_ENDPOINTS

from . import clients
from .exchanges import HEAD, answered, exchange, streamed
from .streams import event_streams

STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
PADDED: dict[str, Any] = {"stream": True, "stream_options": {"include_obfuscation": True}}
IDS: dict[str, Any] = {"return_token_ids": True, "return_prompt_text": True}
WITH_LOGPROBS: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
PACKED: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
FUNCTIONS: dict[str, Any] = {"functions": [{"name": "get_weather"}, {"name": "get_time"}]}
# FastDeploy's members have the values of vLLM's, with other names.
NOTHING_IN_MESSAGE = {"completion_token_ids": [], "completion_tokens": ""}
NOTHING_GENERATED = {**NOTHING_IN_MESSAGE, "token_ids": []}
DIALECT = st.sampled_from(list(DIALECTS.values()))

CHAT, TEXTS = Endpoint.CHAT, Endpoint.COMPLETIONS
RESPONSES, MESSAGES = Endpoint.RESPONSES, Endpoint.MESSAGES
FOLDS = {
    CHAT: clients.chat_answer,
    TEXTS: clients.completion_answer,
    RESPONSES: clients.response_answer,
    MESSAGES: clients.message_answer,
}
ASKED: list[tuple[Endpoint, dict[str, Any]]] = [
    *((CHAT, {**STREAM, **fields}) for fields in ({}, IDS, FUNCTIONS)),
    *((TEXTS, {**STREAM, **fields}) for fields in ({}, IDS)),
    *((RESPONSES, {**STREAM, **fields}) for fields in ({}, WITH_LOGPROBS, PACKED, PADDED)),
    *((MESSAGES, fields) for fields in ({"stream": True}, PADDED)),
]


@table("endpoint, fields", ASKED)
@given(st.data(), st.integers(1, 4), st.integers(1, 3), DIALECT)
def test_a_stream_adds_up_to_the_body(
    endpoint: Endpoint, fields: dict[str, Any], data: Any, n: int, num_prompts: int, dialect: Any
) -> None:
    n = n if endpoint in (CHAT, TEXTS) else 1
    num_prompts = num_prompts if endpoint is TEXTS else 1
    prompts = {"prompt": ["Once"] * num_prompts} if endpoint is TEXTS else {}
    events = data.draw(
        event_streams(
            n * num_prompts,
            with_tokens="top_logprobs" in fields,
            only_functions="functions" in fields,
            num_prompts_with_ids=num_prompts if "return_token_ids" in fields else 0,
            with_compaction=endpoint is RESPONSES,
        )
    )
    asked = exchange(endpoint, dialect, n=n, **prompts, **fields)

    whole, joined = answered(asked, events), FOLDS[endpoint](streamed(asked, events))

    if endpoint is CHAT:
        whole["object"] = "chat.completion.chunk"
    for choice in joined["choices"] if "return_token_ids" in fields else ():
        # A stream has no members for missing tokens.
        for of_choice, nothing in (
            (choice, {"token_ids": []} if endpoint is CHAT else NOTHING_GENERATED),
            (choice.get("message", {}), NOTHING_IN_MESSAGE),
        ):
            of_choice |= nothing | of_choice
    assert joined == whole


@table(
    "endpoint, asked",
    [
        (Endpoint.CHAT, {}),
        (Endpoint.CHAT, {"functions": [{"name": "f"}]}),
        (Endpoint.COMPLETIONS, {}),
        (Endpoint.RESPONSES, {}),
    ],
)
@given(st.data())
def test_padded_deltas_have_few_sizes_and_the_same_text(
    endpoint: Endpoint, asked: dict[str, Any], data: st.DataObject
) -> None:
    n = 1 if endpoint is RESPONSES else 2
    events = data.draw(event_streams(n, only_functions="functions" in asked))

    plain, padded = (
        streamed(exchange(endpoint, n=n, **asked, **fields), events)
        for fields in ({"stream": True}, PADDED)
    )

    deltas = [block for block in padded.split(b"\n\n") if b'"obfuscation"' in block]
    assert all((len(block) - block.index(b"data: {") + 2) % 32 == 0 for block in deltas)
    returned = [
        {key: value for key, value in payload.items() if key != "obfuscation"}
        for payload in clients.payloads(padded)
    ]
    assert returned == clients.payloads(plain)


@table("endpoint", GENERATION_ENDPOINTS)
@given(st.data())
def test_a_failed_stream_ends_with_its_error(endpoint: Endpoint, data: st.DataObject) -> None:
    whole = data.draw(event_streams(1))
    events: list[ev.Event] = whole[: data.draw(st.integers(0, len(whole) - 1))]
    failed = ev.Failed(EngineLost("The engine ended."))

    stream = streamed(exchange(endpoint, stream=True), [*events, failed])

    *_, last = clients.payloads(stream)
    returned = last["response"] if endpoint is Endpoint.RESPONSES else last
    assert returned["error"]["message"] == "The engine ended."


@given(st.data())
def test_a_failed_response_keeps_its_output(data: st.DataObject) -> None:
    whole = data.draw(event_streams(1))
    events = whole[: data.draw(st.integers(1, len(whole) - 2))]
    response = exchange(Endpoint.RESPONSES, stream=True)

    stream = streamed(response, [*events, ev.Failed(EngineLost("The engine ended."))])

    error, failed = clients.payloads(stream)[-2:]
    assert error["type"] == "error"
    assert failed["response"]["status"] == "failed"
    added = [event for event in clients.payloads(stream) if event["type"].endswith("item.added")]
    kept = [item["id"] for item in failed["response"]["output"]]
    assert kept == [event["item"]["id"] for event in added]


@table("endpoint", GENERATION_ENDPOINTS)
@given(st.data())
def test_no_client_splits_a_line_and_the_name_of_an_event_is_its_type(
    endpoint: Endpoint, data: st.DataObject
) -> None:
    stream = streamed(exchange(endpoint, stream=True), data.draw(event_streams(1)))

    assert stream.decode().splitlines() == stream.decode().split("\n")[:-1]
    named = clients.frames(stream)
    if endpoint in (CHAT, TEXTS):
        return
    if endpoint is RESPONSES:
        named.pop()  # [DONE]
    else:
        ends = [named[0].name, named[1].name, named[-1].name]
        assert ends == ["message_start", "ping", "message_stop"]
    assert [frame.name for frame in named] == [frame.payload["type"] for frame in named]
    assert all("error" not in frame.payload for frame in named)


@table("endpoint", [RESPONSES, MESSAGES])
def test_arguments_never_get_into_the_wrong_item_or_block(endpoint: Endpoint) -> None:
    encoder = exchange(endpoint, stream=True).encoder(HEAD)
    for event in (ev.Started(), ev.ToolCallStarted(0, 0, "call_a", "f"), ev.TextDelta(0, "Hi")):
        encoder.feed(event)

    with pytest.raises(ValueError, match="not the open item"):
        encoder.feed(ev.ToolCallDelta(0, 0, "{}"))
