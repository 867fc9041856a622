"""Completions: the parsed request, and the two encodings of its answer.

Prompts are raw, so the output is parsed for reasoning and tool calls only if the client or the
model's options ask for that. OpenAI has no members for them; these are FastDeploy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.events import (
    FinishReason,
    ReasoningDelta,
    Started,
    TokensGenerated,
    ToolCallDelta,
    ToolCallStarted,
)
from vinery_serving.core.logprobs import Token
from vinery_serving.core.request import Endpoint, ToolCall
from vinery_serving.core.result import ChoiceResult, Result
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.calls import ToolCalls
from vinery_serving.protocols.common.chunks import Chunk, ChunkExchange, Members, OtherDelta
from vinery_serving.protocols.common.encoding import json_text
from vinery_serving.protocols.common.logprobs import (
    TextLogprobs,
    completion_tokens,
    prompt_logprobs,
    prompt_tokens,
)
from vinery_serving.protocols.completions.body import CompletionsBody

_CALLS: Final = ToolCalls()


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> CompletionsExchange:
    """Read the body of a completion request. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.COMPLETIONS, CompletionsBody, body, dialect)
    wire.refuse_contradictions()
    request = wire.request(
        Endpoint.COMPLETIONS,
        wire.prompts(),
        dialect,
        unused=unused,
        default_limit=dialect.completions_max_tokens,
        grammar=wire.constraint(wire.response_format),
        shows_arrival=wire.return_arrival_time,
        parses_output=wire.parse_output,
    )
    head = {"system_fingerprint": fingerprint}
    return CompletionsExchange(request, wire.includes_usage, wire.is_obfuscated, head)


@dataclass(frozen=True, slots=True)
class CompletionsExchange(ChunkExchange):
    """A completion request. Chunks and whole answers have the same `object`."""

    id_prefix = "cmpl-"
    kind = chunk_kind = "text_completion"
    text_open = b'"text":'
    no_text = b'"text":""'

    def content(self, choice: ChoiceResult, result: Result) -> Members:
        members: dict[str, object] = {"text": choice.text}
        if choice.reasoning:
            members["reasoning_content"] = choice.reasoning
        return members | (_CALLS.member(choice.tool_calls) if choice.tool_calls else {})

    def choice_extras(self, choice: ChoiceResult, result: Result) -> Members:
        prompt = choice.index // self.request.n
        has_ids = self.request.wants_token_ids
        generated = _tokens(choice.token_ids, choice.raw_text) if has_ids else {}
        members = self._prompt(result, prompt, generated)
        if self.request.logprobs.num_top_of_prompt is not None:
            members["prompt_logprobs"] = prompt_logprobs(result.scored_prompts[prompt])
        return members

    def finish_reason(self, reason: FinishReason) -> str:
        return reason.value

    def logprobs(
        self, source: Started | Result, choice: int, *, is_streamed: bool
    ) -> Callable[[Sequence[Token]], object]:
        prompt = choice // self.request.n
        return TextLogprobs(source.prompt_chars[prompt] if source.prompt_chars else 0).of

    def start(self, event: Started, choice: int) -> Chunk | None:
        members = self._prompt(event, choice // self.request.n)
        return Chunk(self.no_text, members) if members else None

    def delta(self, event: OtherDelta) -> bytes:
        match event:
            case ReasoningDelta():
                member = b'"reasoning_content":' + json_text(event.text)
            case ToolCallDelta():
                member = _CALLS.delta(event)
            case ToolCallStarted():
                call = ToolCall(event.id, event.name, "", event.is_custom)
                member = _CALLS.start(event.index, call)
        return b"%b,%b" % (self.no_text, member)

    def tokens(self, event: TokensGenerated) -> Chunk:
        return Chunk(self.no_text, _tokens(event.token_ids, event.text))

    def _prompt(
        self, source: Started | Result, prompt: int, generated: Members | None = None
    ) -> dict[str, object]:
        """Return the ids of a prompt, the `generated` ones, and the text of the prompt."""
        members: dict[str, object] = {}
        if self.request.wants_token_ids:
            members |= prompt_tokens(source.prompt_ids[prompt], source.prompt_texts[prompt])
        members |= generated or {}
        if self.request.wants_prompt_text:
            members["prompt_text"] = source.prompt_texts[prompt]
        return members


def _tokens(token_ids: Sequence[int], text: str) -> Members:
    return {**completion_tokens(token_ids, text), "token_ids": token_ids}
