"""Requests and answers for these tests."""

import json
from collections.abc import Iterable
from typing import Any

from tests.results import build_result
from vinery_serving.core.dialects import V1, Dialect
from vinery_serving.core.endpoints import AnyEndpoint, Endpoint, PoolingEndpoint
from vinery_serving.core.events import (
    Completed,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import GenerationRequest
from vinery_serving.protocols import parse
from vinery_serving.protocols.common.exchange import Exchange
from vinery_serving.protocols.pooling.common import PoolingExchange
from vinery_serving.protocols.pooling.parsing import parse_pooling

HEAD = AnswerIdentity("0123456789abcdef01234567", 1_700_000_000, "grape-1b")
COMPLETED_AT = 1_700_000_002
USAGE = Usage(
    num_prompt_tokens=11, num_cached_tokens=3, num_output_tokens=7, num_reasoning_tokens=2
)

# The smallest valid body of each endpoint.
LEAST: dict[AnyEndpoint, dict[str, Any]] = {
    Endpoint.CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    Endpoint.COMPLETIONS: {"prompt": "Once"},
    Endpoint.RESPONSES: {"input": "Hi"},
    Endpoint.MESSAGES: {"max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]},
    PoolingEndpoint.EMBEDDINGS: {"input": "Hi"},
    PoolingEndpoint.RERANK: {"query": "Hi", "documents": ["Hello"]},
    PoolingEndpoint.SCORE: {"text_1": "Hi", "text_2": "Hello"},
}
OPENAI = (Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES)


def exchange(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> Exchange:
    """The least request to `endpoint`, with these fields added or replaced."""
    body = json.dumps({**LEAST[endpoint], **fields}).encode()
    return parse(endpoint, body, dialect, fingerprint="vinery-0.1")


def parsed(
    endpoint: AnyEndpoint, dialect: Dialect = V1, /, **fields: Any
) -> Exchange | PoolingExchange:
    """The least request to any endpoint, with these fields added or replaced."""
    if isinstance(endpoint, Endpoint):
        return exchange(endpoint, dialect, **fields)
    return parse_pooling(endpoint, json.dumps({**LEAST[endpoint], **fields}).encode())


def request(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return exchange(endpoint, dialect, **fields).request


def chat(dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return request(Endpoint.CHAT, dialect, **fields)


def completion(dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return request(Endpoint.COMPLETIONS, dialect, **fields)


def response(dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return request(Endpoint.RESPONSES, dialect, **fields)


def message(dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return request(Endpoint.MESSAGES, dialect, **fields)


def streamed(exchange: Exchange, events: Iterable[Event]) -> bytes:
    """All frames of a stream."""
    encoder = exchange.encoder(HEAD)
    return b"".join(encoder.feed(event) for event in events)


def answered(exchange: Exchange, events: Iterable[Event]) -> Any:
    """The unary body, decoded."""
    return json.loads(exchange.body(HEAD, build_result(events)))


PLAIN: list[Event] = [
    Started(),
    TextDelta(0, "Grüße"),
    TextDelta(0, ', "you"\n'),
    Finished(0, FinishReason.STOP),
    Completed(USAGE, COMPLETED_AT),
]

WITH_REASONING: list[Event] = [
    Started(),
    ReasoningDelta(0, "A line\u2028"),
    ReasoningDelta(0, "end.\x85"),
    TextDelta(0, "Done\u2029"),
    Finished(0, FinishReason.LENGTH),
    Completed(USAGE, COMPLETED_AT),
]

TWO_CALLS: list[Event] = [
    Started(),
    ToolCallStarted(0, 0, "call_a", "get_weather"),
    ToolCallDelta(0, 0, '{"city":'),
    ToolCallDelta(0, 0, '"Oslo"}'),
    ToolCallStarted(0, 1, "call_b", "get_time"),
    ToolCallDelta(0, 1, "{}"),
    Finished(0, FinishReason.TOOL_CALLS),
    Completed(USAGE, COMPLETED_AT),
]

CUSTOM_CALL: list[Event] = [
    Started(),
    ToolCallStarted(0, 0, "call_a", "run", is_custom=True),
    ToolCallDelta(0, 0, 'print("', is_custom=True),
    ToolCallDelta(0, 0, 'é")\n', is_custom=True),
    Finished(0, FinishReason.TOOL_CALLS),
    Completed(USAGE, COMPLETED_AT),
]

TWO_CHOICES: list[Event] = [
    Started(2),
    TextDelta(1, "B"),
    TextDelta(0, "A"),
    Finished(1, FinishReason.LENGTH),
    TextDelta(0, "a"),
    Finished(0, FinishReason.STOP),
    Completed(USAGE, COMPLETED_AT),
]

WITH_REASONING_TWICE: list[Event] = [
    Started(2),
    TextDelta(1, '{"b":'),
    ReasoningDelta(0, "Hm."),
    TextDelta(0, '{"a":1}'),
    TextDelta(1, "1"),
    Finished(1, FinishReason.LENGTH),
    Finished(0, FinishReason.STOP),
    Completed(USAGE, COMPLETED_AT),
]
