"""The Responses protocol: body to request, events to typed events, result to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serving.core.events import FinishReason
from serving.core.ids import AnswerIdentity
from serving.core.request import Dialect, Endpoint, GenerationRequest
from serving.core.result import Result
from serving.protocols.base import Encoder
from serving.protocols.obfuscation import obfuscated
from serving.protocols.refused import read_body
from serving.protocols.responses.answer import Answer
from serving.protocols.responses.body import ResponsesBody
from serving.protocols.responses.echo import echo
from serving.protocols.responses.encoder import ResponsesEncoder
from serving.protocols.responses.items import output_items
from serving.protocols.responses.names import Names, names_of
from serving.protocols.responses.order import InOrder
from serving.protocols.sse import json_bytes


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> ResponsesExchange:
    """Read a Responses request. Raises `InvalidRequest`.

    `fingerprint` is for the other protocols: this one has no place for it.
    """
    wire = read_body(Endpoint.RESPONSES, ResponsesBody, body)
    wire.require_input()
    wire.refuse_contradictions()
    conversation = wire.conversation()
    request = wire.request(Endpoint.RESPONSES, conversation, dialect, grammar=wire.grammar(dialect))
    return ResponsesExchange(
        request,
        echo(wire, conversation.tools),
        names_of(conversation.tools),
        packs_thoughts=wire.packs_thoughts,
        is_obfuscated=wire.is_obfuscated,
    )


@dataclass(frozen=True, slots=True)
class ResponsesExchange:
    """A Responses request, and how to answer it. `echo` is what the answer repeats, `names`
    what the tools of namespaces are called."""

    request: GenerationRequest
    echo: Mapping[str, object]
    names: Names
    packs_thoughts: bool = False
    is_obfuscated: bool = False

    def encoder(self, head: AnswerIdentity) -> Encoder:
        plain = ResponsesEncoder(self._answer(head))
        encoder = obfuscated(plain, head, is_wanted=self.is_obfuscated)
        return InOrder(encoder) if self.request.num_choices > 1 else encoder

    def body(self, head: AnswerIdentity, result: Result) -> bytes:
        choices = result.choices
        items = output_items(head, choices, self.names, packs_thoughts=self.packs_thoughts)
        cuts = [each.cause for each in choices if each.finish_reason is FinishReason.LENGTH]
        answer = self._answer(head)
        return json_bytes(answer.finished(items, result.usage, result.completed_at, cuts=cuts))

    def _answer(self, head: AnswerIdentity) -> Answer:
        reason = self.request.dialect.length_reason
        return Answer(head, self.echo, reason, self.names, self.packs_thoughts)
