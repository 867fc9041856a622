"""The handling options and repetition detection, on every endpoint."""

import json
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.results import build_result
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.events import (
    REPETITION,
    Completed,
    Event,
    Finished,
    FinishReason,
    Started,
    TextDelta,
    Usage,
)
from vinery_serving.core.request import Endpoint

from .clients import payloads
from .exchanges import COMPLETED_AT, HEAD, USAGE, answered, exchange, request, streamed

every_endpoint = table("endpoint", Endpoint)


@every_endpoint
@table(
    "asked, member, words",
    [
        ({"max_pattern_size": 3}, "min_count", "must be at least 2"),
        ({"max_pattern_size": 3, "min_count": 1}, "min_count", "must be at least 2"),
        (
            {"max_pattern_size": 3, "min_pattern_size": 4, "min_count": 2},
            "min_pattern_size",
            "must be at most `max_pattern_size`, which is 3",
        ),
        ({"max_pattern_size": 1025, "min_count": 2}, "max_pattern_size", "must be at most 1024"),
        ({"max_pattern_size": -1}, "max_pattern_size", "must be at least 0"),
    ],
)
def test_an_impossible_repetition_is_refused(
    endpoint: Endpoint, asked: dict[str, int], member: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as refusal:
        request(endpoint, repetition_detection=asked)

    assert refusal.value.param == f"repetition_detection.{member}"


STOPPED = [Started(), TextDelta(0, "a"), Finished(0, FinishReason.STOP, "END")]
CIRCLED = [Started(), TextDelta(0, "a"), Finished(0, FinishReason.STOP, REPETITION)]
BY_TOKEN = [Started(), TextDelta(0, "a"), Finished(0, FinishReason.STOP, 7)]


@table("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
@table("events, cause", [(STOPPED, "END"), (CIRCLED, "repetition_detected"), (BY_TOKEN, 7)])
def test_a_choice_has_its_stop_reason(
    endpoint: Endpoint, events: list[Event], cause: str | int
) -> None:
    events = [*events, Completed(USAGE, COMPLETED_AT)]
    whole = exchange(endpoint)
    stream = exchange(endpoint, stream=True)

    strict = ChatCompletion if endpoint is Endpoint.CHAT else Completion
    body = strict.model_validate_json(whole.body(HEAD, build_result(events)), strict=True)
    last = payloads(streamed(stream, events))[-1]

    assert body.choices[0].stop_reason == last["choices"][0]["stop_reason"] == cause
    if endpoint is Endpoint.CHAT:
        ChatCompletionChunk.model_validate_json(json.dumps(last), strict=True)


ASKED_BACK: list[Event] = [
    Started(2, ((1, 2), (3,)), ("<s>one", "two")),
    TextDelta(0, "a"),
    TextDelta(1, "b"),
    Finished(0, FinishReason.STOP),
    Finished(1, FinishReason.STOP),
    Completed(USAGE, COMPLETED_AT),
]
BACK = {"return_prompt_text": True, "return_token_ids": True}


def test_each_completion_has_the_text_of_its_prompt() -> None:
    asked = {"prompt": ["one", "two"], **BACK}
    whole = answered(exchange(Endpoint.COMPLETIONS, **asked), ASKED_BACK)["choices"]
    chunks = payloads(streamed(exchange(Endpoint.COMPLETIONS, **asked, stream=True), ASKED_BACK))

    for choices in (whole, [chunk["choices"][0] for chunk in chunks[:2]]):
        assert [choice["prompt_text"] for choice in choices] == ["<s>one", "two"]
        assert [choice["prompt_token_ids"] for choice in choices] == [[1, 2], [3]]
    assert all("prompt_text" not in chunk["choices"][0] for chunk in chunks[2:])


def test_a_chat_returns_the_text_of_its_prompt_once() -> None:
    events = [Started(1, (), ("<s>one",)), *ASKED_BACK[1:2], *ASKED_BACK[3:4], ASKED_BACK[-1]]
    asked = exchange(Endpoint.CHAT, return_prompt_text=True)
    body = ChatCompletion.model_validate_json(asked.body(HEAD, build_result(events)), strict=True)
    first, *rest = payloads(streamed(asked, events))

    assert body.model_extra == {"prompt_text": "<s>one"}
    assert first["prompt_text"] == "<s>one"
    assert all("prompt_text" not in chunk for chunk in rest)


# -- The tokens of pictures: reported for prompts that have any, and for no others -------------

DETAILS = {
    Endpoint.CHAT: "prompt_tokens_details",
    Endpoint.COMPLETIONS: "prompt_tokens_details",
    Endpoint.RESPONSES: "input_tokens_details",
}


def ended(num_image_tokens: int) -> list[Any]:
    usage = Usage(20, 3, 1, num_image_tokens=num_image_tokens)
    return [Started(), Finished(0, FinishReason.STOP), Completed(usage, COMPLETED_AT)]


@table("endpoint", DETAILS)
def test_a_body_has_the_tokens_of_its_pictures(endpoint: Endpoint) -> None:
    for num, expected in ((16, 16), (0, None)):
        details = answered(exchange(endpoint), ended(num))["usage"][DETAILS[endpoint]]

        assert details.get("image_tokens") == expected
        assert details["cached_tokens"] == 3


@table("endpoint", DETAILS)
def test_a_stream_has_them_in_its_usage(endpoint: Endpoint) -> None:
    options = {} if endpoint is Endpoint.RESPONSES else {"stream_options": {"include_usage": True}}
    events = payloads(streamed(exchange(endpoint, stream=True, **options), ended(16)))
    usages = [event.get("response", event).get("usage") for event in events]

    assert [usage[DETAILS[endpoint]]["image_tokens"] for usage in usages if usage] == [16]
