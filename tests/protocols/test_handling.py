"""Repetition detection, stop reasons, the texts of prompts and the tokens of pictures."""

import json

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.results import build_result
from tests.tables import table
from vinery_serving.core import events as ev
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import Endpoint

from .clients import payloads
from .exchanges import HEAD, answered, ended, exchange, request, streamed

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


STOPPED = [ev.Started(), ev.TextDelta(0, "a"), ev.Finished(0, ev.FinishReason.STOP, "END")]
CIRCLED = [ev.Started(), ev.TextDelta(0, "a"), ev.Finished(0, ev.FinishReason.STOP, ev.REPETITION)]
BY_TOKEN = [ev.Started(), ev.TextDelta(0, "a"), ev.Finished(0, ev.FinishReason.STOP, 7)]


@table("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
@table("events, cause", [(STOPPED, "END"), (CIRCLED, "repetition_detected"), (BY_TOKEN, 7)])
def test_a_choice_has_its_stop_reason(
    endpoint: Endpoint, events: list[ev.Event], cause: str | int
) -> None:
    events = [*events, ended()[-1]]
    whole = exchange(endpoint)
    stream = exchange(endpoint, stream=True)

    strict = ChatCompletion if endpoint is Endpoint.CHAT else Completion
    body = strict.model_validate_json(whole.body(HEAD, build_result(events)), strict=True)
    last = payloads(streamed(stream, events))[-1]

    assert body.choices[0].stop_reason == last["choices"][0]["stop_reason"] == cause
    if endpoint is Endpoint.CHAT:
        ChatCompletionChunk.model_validate_json(json.dumps(last), strict=True)


ASKED_BACK: list[ev.Event] = [
    ev.Started(2, ((1, 2), (3,)), ("<s>one", "two")),
    ev.TextDelta(0, "a"),
    ev.TextDelta(1, "b"),
    ev.Finished(1, ev.FinishReason.STOP),
    *ended()[1:],
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
    events = [ev.Started(1, (), ("<s>one",)), *ended(ev.TextDelta(0, "a"))[1:]]
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


def of_pictures(num_image_tokens: int) -> list[ev.Event]:
    return ended(usage=ev.Usage(20, 3, 1, num_image_tokens=num_image_tokens))


@table("endpoint", DETAILS)
def test_a_body_and_a_stream_have_the_tokens_of_their_pictures(endpoint: Endpoint) -> None:
    for num, expected in ((16, 16), (0, None)):
        details = answered(exchange(endpoint), of_pictures(num))["usage"][DETAILS[endpoint]]

        assert details.get("image_tokens") == expected
        assert details["cached_tokens"] == 3

    options = {} if endpoint is Endpoint.RESPONSES else {"stream_options": {"include_usage": True}}
    events = payloads(streamed(exchange(endpoint, stream=True, **options), of_pictures(16)))
    usages = [event.get("response", event).get("usage") for event in events]

    assert [usage[DETAILS[endpoint]]["image_tokens"] for usage in usages if usage] == [16]
