"""Responses: the parsed request, the two encodings of its answer, and `input_tokens`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import MissingParameter
from vinery_serving.core.events import FinishReason
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import Endpoint, GenerationRequest
from vinery_serving.core.result import Result
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.encoding import KEEP_ALIVE, json_bytes
from vinery_serving.protocols.common.exchange import Encoder, Obfuscated
from vinery_serving.protocols.responses.body import ResponsesBody, echo
from vinery_serving.protocols.responses.encoder import ChoicesInOrder, ResponsesEncoder
from vinery_serving.protocols.responses.objects import (
    InputTokens,
    Members,
    Names,
    ResponseObjects,
    names_of,
)


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> ResponsesExchange:
    """Read the body of a Responses request. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.RESPONSES, ResponsesBody, body, dialect)
    if wire.input is None:
        raise MissingParameter("`input` is required.", param="input")
    wire.refuse_contradictions()
    conversation = wire.conversation()
    request = wire.request(
        Endpoint.RESPONSES, conversation, dialect, unused=unused, grammar=wire.grammar(dialect)
    )
    return ResponsesExchange(
        request,
        echo(wire, conversation.tools),
        names_of(conversation.tools),
        packs_reasoning="reasoning.encrypted_content" in (wire.include or ()),
        is_obfuscated=wire.is_obfuscated,
    )


@dataclass(frozen=True, slots=True)
class ResponsesExchange:
    """A Responses request, and the values of it that the answer needs: `echo` holds the
    repeated members, `names` the names of tools in namespaces."""

    keep_alive: ClassVar[bytes] = KEEP_ALIVE

    request: GenerationRequest
    echo: Members
    names: Names
    packs_reasoning: bool = False
    is_obfuscated: bool = False

    def encoder(self, identity: AnswerIdentity) -> Encoder:
        encoder: Encoder = ResponsesEncoder(self._objects(identity))
        if self.is_obfuscated:
            encoder = Obfuscated(encoder, identity)
        return ChoicesInOrder(encoder) if self.request.num_choices > 1 else encoder

    def body(self, identity: AnswerIdentity, result: Result) -> bytes:
        choices = result.choices
        cuts = [each.cause for each in choices if each.finish_reason is FinishReason.LENGTH]
        objects = self._objects(identity).with_sampling(result.sampling)
        items = objects.items(choices)
        return json_bytes(objects.finished(items, result.usage, result.completed_at, cuts=cuts))

    def _objects(self, identity: AnswerIdentity) -> ResponseObjects:
        dialect = self.request.dialect
        return ResponseObjects(identity, self.echo, self.names, dialect, self.packs_reasoning)


def parse_count(body: bytes, dialect: Dialect) -> GenerationRequest:
    """Read the body of `POST responses/input_tokens`: that of a Responses request, but `input`
    may be absent if it has `instructions`. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.RESPONSES, ResponsesBody, body, dialect)
    if wire.input is None and not wire.instructions:
        raise MissingParameter("`input` is required.", param="input")
    return wire.request(Endpoint.RESPONSES, wire.conversation(), dialect, unused=unused)


def count_body(num_tokens: int) -> bytes:
    """Return the answer of `POST responses/input_tokens`."""
    return json_bytes(InputTokens(input_tokens=num_tokens))
