"""Messages: the parsed request, the two encodings of its answer, and `count_tokens`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import Endpoint, GenerationRequest
from vinery_serving.core.result import Result
from vinery_serving.core.unused import Unused
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.exchange import Encoder, Obfuscated
from vinery_serving.protocols.messages.answer import MessageTokens, block, ending, message
from vinery_serving.protocols.messages.body import CountBody, MessagesBody
from vinery_serving.protocols.messages.encoder import PING, MessagesEncoder


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> MessagesExchange:
    """Read the body of a Messages request. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.MESSAGES, MessagesBody, body, dialect)
    return MessagesExchange(_request(wire, dialect, unused), wire.is_obfuscated)


def _request(wire: MessagesBody, dialect: Dialect, unused: Unused) -> GenerationRequest:
    wire.refuse_contradictions()
    request = wire.request(
        Endpoint.MESSAGES,
        wire.conversation(),
        dialect,
        unused=unused + wire.unused_members(),
        grammar=wire.grammar(),
    )
    return wire.with_thinking(request)


@dataclass(frozen=True, slots=True)
class MessagesExchange:
    """A Messages request."""

    keep_alive: ClassVar[bytes] = PING

    request: GenerationRequest
    is_obfuscated: bool = False

    def encoder(self, identity: AnswerIdentity) -> Encoder:
        encoder = MessagesEncoder(identity, self.request)
        return Obfuscated(encoder, identity) if self.is_obfuscated else encoder

    def body(self, identity: AnswerIdentity, result: Result) -> bytes:
        (choice,) = result.choices
        ended = ending(
            choice.finish_reason,
            choice.cause,
            self.request,
            is_context_full=choice.is_context_full,
        )
        content = [block(item) for item in choice.items]
        return json_bytes(message(identity, content, result.usage, ended))


def parse_count(body: bytes, dialect: Dialect) -> GenerationRequest:
    """Read the body of `POST messages/count_tokens`: that of a Messages request, but `max_tokens`
    may be absent. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.MESSAGES, CountBody, body, dialect)
    return _request(wire, dialect, unused)


def count_body(num_tokens: int) -> bytes:
    """Return the answer of `POST messages/count_tokens`."""
    return json_bytes(MessageTokens(input_tokens=num_tokens))
