"""Requests and answers for these tests."""

import json
from collections.abc import Iterable
from typing import Any

from tests.results import build_result
from vinery_serving.core import events as ev
from vinery_serving.core.dialects import V1, Dialect
from vinery_serving.core.events import FinishReason
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import Conversation, GenerationRequest
from vinery_serving.core.tasks import GENERATION_ENDPOINTS, Endpoint
from vinery_serving.protocols import Exchange, parse
from vinery_serving.protocols.pooling import PoolingExchange, parse_pooling

HEAD = AnswerIdentity("0123456789abcdef01234567", 1_700_000_000, "grape-1b")
COMPLETED_AT = 1_700_000_002
USAGE = ev.TokenCounts(11, num_cached_tokens=3, num_output_tokens=7, num_reasoning_tokens=2)

# The smallest valid body of each endpoint.
LEAST: dict[Endpoint, dict[str, Any]] = {
    Endpoint.CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    Endpoint.COMPLETIONS: {"prompt": "Once"},
    Endpoint.RESPONSES: {"input": "Hi"},
    Endpoint.MESSAGES: {"max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]},
    Endpoint.EMBEDDINGS: {"input": "Hi"},
    Endpoint.RERANK: {"query": "Hi", "documents": ["Hello"]},
    Endpoint.SCORE: {"text_1": "Hi", "text_2": "Hello"},
}
OPENAI = (Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES)


def exchange(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> Exchange:
    """The least request to `endpoint`, with these fields added or replaced."""
    body = json.dumps({**LEAST[endpoint], **fields}).encode()
    return parse(endpoint, body, dialect, fingerprint="vinery-0.1")


def parsed(
    endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any
) -> Exchange | PoolingExchange:
    """The least request to any endpoint, with these fields added or replaced."""
    if endpoint in GENERATION_ENDPOINTS:
        return exchange(endpoint, dialect, **fields)
    return parse_pooling(endpoint, json.dumps({**LEAST[endpoint], **fields}).encode())


def request(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return exchange(endpoint, dialect, **fields).request


def conversation_of(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> Conversation:
    prompt = request(endpoint, dialect, **fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def chat(dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return request(Endpoint.CHAT, dialect, **fields)


def completion(dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return request(Endpoint.COMPLETIONS, dialect, **fields)


def response(dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return request(Endpoint.RESPONSES, dialect, **fields)


def message(dialect: Dialect = V1, /, **fields: Any) -> GenerationRequest:
    return request(Endpoint.MESSAGES, dialect, **fields)


def streamed(exchange: Exchange, events: Iterable[ev.Event]) -> bytes:
    """All frames of a stream."""
    encoder = exchange.encoder(HEAD)
    return b"".join(encoder.feed(event) for event in events)


def answered(exchange: Exchange, events: Iterable[ev.Event]) -> Any:
    """The unary body, decoded."""
    return json.loads(exchange.body(HEAD, build_result(events)))


def ended(
    *events: ev.Event, reason: FinishReason = FinishReason.STOP, usage: ev.TokenCounts = USAGE
) -> list[ev.Event]:
    """An answer of one choice, which ends after these events."""
    end: list[ev.Event] = [ev.Finished(0, reason), ev.Completed(usage, COMPLETED_AT)]
    return [ev.Started(), *events, *end]


PLAIN = ended(ev.TextDelta(0, "Grüße"), ev.TextDelta(0, ', "you"\n'))
WITH_REASONING = ended(
    ev.ReasoningDelta(0, "A line\u2028"),
    ev.ReasoningDelta(0, "end.\x85"),
    ev.TextDelta(0, "Done\u2029"),
    reason=FinishReason.LENGTH,
)
TWO_CALLS = ended(
    ev.ToolCallStarted(0, 0, "call_a", "get_weather"),
    ev.ToolCallDelta(0, 0, '{"city":'),
    ev.ToolCallDelta(0, 0, '"Oslo"}'),
    ev.ToolCallStarted(0, 1, "call_b", "get_time"),
    ev.ToolCallDelta(0, 1, "{}"),
    reason=FinishReason.TOOL_CALLS,
)
CUSTOM_CALL = ended(
    ev.ToolCallStarted(0, 0, "call_a", "run", is_custom=True),
    ev.ToolCallDelta(0, 0, 'print("', is_custom=True),
    ev.ToolCallDelta(0, 0, 'é")\n', is_custom=True),
    reason=FinishReason.TOOL_CALLS,
)
TWO_CHOICES: list[ev.Event] = [
    ev.Started(2),
    ev.TextDelta(1, "B"),
    ev.TextDelta(0, "A"),
    ev.Finished(1, FinishReason.LENGTH),
    *ended(ev.TextDelta(0, "a"))[1:],
]
WITH_REASONING_TWICE: list[ev.Event] = [
    ev.Started(2),
    ev.TextDelta(1, '{"b":'),
    ev.ReasoningDelta(0, "Hm."),
    ev.TextDelta(0, '{"a":1}'),
    ev.TextDelta(1, "1"),
    ev.Finished(1, FinishReason.LENGTH),
    *ended()[1:],
]
