"""The first token of a stream, times, sampling in force, and the tokens of pictures."""

from typing import Any

from tests.tables import table
from vinery_serving.core import events as ev
from vinery_serving.core.dialects import V1, V3
from vinery_serving.core.request import Endpoint, Sampling
from vinery_serving.protocols.common.encoding import DONE

from .clients import payloads
from .exchanges import HEAD, answered, ended, exchange, streamed

# -- The first token: /v3 shows it, with or without text; /v1 shows the acceptance -------------


@table(
    "endpoint, start",
    [
        (Endpoint.CHAT, {"delta": {"role": "assistant", "content": None}}),
        (Endpoint.RESPONSES, {"type": "response.in_progress"}),
    ],
)
def test_a_stream_under_v3_shows_the_first_token_of_each_choice(
    endpoint: Endpoint, start: dict[str, Any]
) -> None:
    def shown(event: ev.Event) -> list[Any]:
        return [
            choice for each in payloads(encoder.feed(event) + DONE) for choice in choices_of(each)
        ]

    encoder = exchange(endpoint, V3, stream=True).encoder(HEAD)
    assert not any(start.items() <= each.items() for each in shown(ev.Started()))
    (first,) = shown(ev.FirstToken(0))
    assert start.items() <= first.items()
    assert not any(start.items() <= each.items() for each in shown(ev.TextDelta(0, "a")))
    # An answer without a token, and an echo, which precedes the tokens.
    for event in (ev.Finished(0, ev.FinishReason.STOP), ev.TextDelta(0, "a")):
        encoder = exchange(endpoint, V3, stream=True).encoder(HEAD)
        encoder.feed(ev.Started())
        assert start.items() <= shown(event)[0].items()

    encoder = exchange(endpoint, V1, stream=True).encoder(HEAD)
    assert len(shown(ev.Started())) == (1 if endpoint is Endpoint.CHAT else 2)


def choices_of(payload: Any) -> list[dict[str, Any]]:
    choices: list[dict[str, Any]] = payload.get("choices", [payload])
    return choices


@table("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
def test_chunks_and_choices_have_the_time_at_which_their_tokens_came(endpoint: Endpoint) -> None:
    end = [ev.Arrived(0.5), *ended()[1:]]
    events = [ev.Started(), ev.Arrived(0.25), ev.TextDelta(0, "a"), *end]
    (choice,) = answered(exchange(endpoint), events)["choices"]
    assert choice["arrival_time"] == 0.5
    *_, text, finish = payloads(streamed(exchange(endpoint, stream=True), events))
    times = [each["choices"][0]["arrival_time"] for each in (text, finish)]
    assert times == [0.25, 0.5]
    assert "arrival_time" not in answered(exchange(endpoint), ended())["choices"][0]


def test_responses_repeat_the_sampling_in_force() -> None:
    in_force = Sampling(0.0, 0.5, frequency_penalty=0.1, presence_penalty=0.2)
    events = [ev.Started(sampling=in_force), *ended()[1:]]
    expected = {"temperature": 0.0, "top_p": 0.25, "frequency_penalty": 0.1}
    assert expected.items() <= answered(exchange(Endpoint.RESPONSES, top_p=0.25), events).items()
    stream = payloads(streamed(exchange(Endpoint.RESPONSES, stream=True, top_p=0.25), events))
    responses = [each["response"] for each in stream if "response" in each]
    assert len(responses) == 3
    assert all(expected.items() <= each.items() for each in responses)


# -- The tokens of media: reported for prompts that have any, and for no others -------------

DETAILS = {
    Endpoint.CHAT: "prompt_tokens_details",
    Endpoint.COMPLETIONS: "prompt_tokens_details",
    Endpoint.RESPONSES: "input_tokens_details",
}


def of_media(num_image_tokens: int, num_video_tokens: int) -> list[ev.Event]:
    media = {"num_image_tokens": num_image_tokens, "num_video_tokens": num_video_tokens}
    return ended(usage=ev.TokenCounts(20, 3, 1, **media))


@table("endpoint", DETAILS)
def test_a_body_and_a_stream_have_the_tokens_of_their_media(endpoint: Endpoint) -> None:
    for counts, expected in (((16, 0), (16, None)), ((0, 8), (None, 8)), ((0, 0), (None, None))):
        details = answered(exchange(endpoint), of_media(*counts))["usage"][DETAILS[endpoint]]

        assert (details.get("image_tokens"), details.get("video_tokens")) == expected
        assert details["cached_tokens"] == 3

    options = {} if endpoint is Endpoint.RESPONSES else {"stream_options": {"include_usage": True}}
    events = payloads(streamed(exchange(endpoint, stream=True, **options), of_media(16, 8)))
    usages = [event.get("response", event).get("usage") for event in events]

    (details,) = [usage[DETAILS[endpoint]] for usage in usages if usage]
    assert (details["image_tokens"], details["video_tokens"]) == (16, 8)
