"""The answers of Messages: the deltas of a stream, joined by a client, equal the body."""

from typing import Any

from msgspec import to_builtins

from tests.tables import table
from vinery_serving.core import errors
from vinery_serving.core import events as ev
from vinery_serving.core.request import Endpoint
from vinery_serving.gateway.workers.worker import decode_refusal, encode_refusal
from vinery_serving.protocols.messages.exchange import error_object

from .clients import message_answer, payloads
from .exchanges import PLAIN, USAGE, answered, ended, exchange, streamed

MESSAGES = Endpoint.MESSAGES

FULL = ev.Finished(0, ev.FinishReason.LENGTH, is_context_full=True)


@table(
    "finished, reason, sequence",
    [
        (ev.Finished(0, ev.FinishReason.STOP), "end_turn", None),
        (ev.Finished(0, ev.FinishReason.STOP, "END"), "stop_sequence", "END"),
        (ev.Finished(0, ev.FinishReason.STOP, ev.REPETITION), "end_turn", None),
        (ev.Finished(0, ev.FinishReason.STOP, 7), "end_turn", None),
        (ev.Finished(0, ev.FinishReason.LENGTH), "max_tokens", None),
        (FULL, "model_context_window_exceeded", None),
        (ev.Finished(0, ev.FinishReason.TOOL_CALLS), "tool_use", None),
    ],
)
def test_why_an_answer_ended(finished: ev.Finished, reason: str, sequence: str | None) -> None:
    events: list[ev.Event] = [ev.Started(), finished, ended()[-1]]

    answer = answered(exchange(MESSAGES, stop_sequences=["END"]), events)
    stream = streamed(exchange(MESSAGES, stop_sequences=["END"], stream=True), events)

    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)
    assert message_answer(stream) == answer


def test_cached_tokens_are_no_input_tokens_and_a_stream_begins_with_the_number_of_those() -> None:
    usage = answered(exchange(MESSAGES), PLAIN)["usage"]

    assert usage == {
        "input_tokens": USAGE.num_prompt_tokens - USAGE.num_cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": USAGE.num_cached_tokens,
        "output_tokens": USAGE.num_output_tokens,
        "output_tokens_details": {"thinking_tokens": USAGE.num_reasoning_tokens},
    }

    started = ev.Started(num_prompt_tokens=USAGE.num_prompt_tokens)
    for events in ([started, ev.Progress(USAGE), *PLAIN[1:]], [started, PLAIN[-1]]):
        start, *_, end, _ = payloads(streamed(exchange(MESSAGES, stream=True), events))
        for name in ("input_tokens", "cache_read_input_tokens"):
            assert start["message"]["usage"][name] == end["usage"][name] == usage[name]
        assert start["message"]["stop_reason"] is None


@table(
    "arguments, expected",
    [
        ('{"city":"Oslo"}', {"city": "Oslo"}),
        ("", {}),
        ('{"city":"Oslo","day":"Mon', {"city": "Oslo"}),
        ("[1]", {"INVALID_JSON": "[1]"}),
        ("Oslo", {"INVALID_JSON": "Oslo"}),
    ],
)
def test_the_input_of_a_call_is_always_an_object(arguments: str, expected: Any) -> None:
    begun = ev.ToolCallStarted(0, 0, "call_0a", "get_weather")
    events = ended(begun, ev.ToolCallDelta(0, 0, arguments), reason=ev.FinishReason.TOOL_CALLS)

    [block] = answered(exchange(MESSAGES), events)["content"]

    call = {"type": "tool_use", "id": "toolu_0a", "name": "get_weather"}
    assert block == {**call, "input": expected}


@table(
    "error, kind",
    [
        (errors.InvalidRequest("No."), "invalid_request_error"),
        (errors.InvalidKey("No."), "authentication_error"),
        (errors.NotPermitted("No."), "permission_error"),
        (errors.ModelNotFound("No."), "not_found_error"),
        (errors.BodyTooLarge(2**20), "request_too_large"),
        (errors.TooManyBodies(2**20), "rate_limit_error"),
        (errors.EngineLost("No."), "api_error"),
        (errors.Overloaded("No."), "overloaded_error"),
    ],
)
def test_each_error_has_anthropics_type(error: errors.ServingError, kind: str) -> None:
    assert to_builtins(error_object(error, "req_1")) == {
        "type": "error",
        "error": {"type": kind, "message": error.message},
        "request_id": "req_1",
    }


@table(
    "numbers, sentence",
    [
        ((2048, 6000, 0), "prompt is too long: 6000 tokens > 2048 maximum"),
        ((2048, 6000, 99), "prompt is too long: 6000 tokens > 2048 maximum"),
        ((2048, 2048, 0), "prompt is too long: 2048 tokens > 2047 maximum"),
        (
            (2048, 2000, 99),
            "input length and `max_tokens` exceed context limit: 2000 + 99 > 2048, decrease input "
            "length or `max_tokens` and try again",
        ),
    ],
)
@table("param", ["messages", "messages[1]"])
def test_a_prompt_that_is_too_long_is_refused_with_anthropics_sentence(
    numbers: tuple[int, int, int], sentence: str, param: str
) -> None:
    names = ("max_context", "num_prompt_tokens", "num_output_tokens")
    fields: Any = dict(zip(names, numbers, strict=True))
    error = errors.ContextTooLong(**fields, param=param)

    for each in (error, decode_refusal(encode_refusal(error))):
        details = error_object(each).error
        assert (details.type, details.message) == ("invalid_request_error", sentence)
