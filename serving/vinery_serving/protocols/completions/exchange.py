"""Completions: the parsed request, and the two encodings of its answer.

Prompts are raw, so the output is parsed for reasoning and tool calls only if the client or the
model's options ask for that. OpenAI has no members for them; these are FastDeploy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, UnsetType
from pydantic import Field

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
from vinery_serving.core.request import Endpoint
from vinery_serving.core.result import ChoiceResult, Result
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.chunks import (
    Chunk,
    ChunkExchange,
    FunctionToolCall,
    Members,
    OtherDelta,
    StopReason,
    ToolCallChunk,
    ToolCalls,
    Usage,
)
from vinery_serving.protocols.common.encoding import Answer, json_text, one_of
from vinery_serving.protocols.common.logprobs import (
    CompletionLogprobs,
    PromptLogprobs,
    TextLogprobs,
    completion_tokens,
    prompt_logprobs,
    prompt_tokens,
)
from vinery_serving.protocols.completions.body import CompletionsBody

_CALLS: Final = ToolCalls()


class CompletionChoice(Answer, kw_only=True):
    """One answer, or more of one."""

    index: int
    text: str
    # With `parse_output`, as the calls.
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallChunk | FunctionToolCall] | UnsetType = UNSET
    logprobs: CompletionLogprobs | None
    finish_reason: Annotated[str, one_of("stop", "length", "tool_calls")] | None
    stop_reason: StopReason | UnsetType = UNSET
    # FastDeploy's members, for requests with `return_token_ids`, and vLLM's.
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_tokens: (
        Annotated[str, Field(description="The text of the prompt's tokens.")] | UnsetType
    ) = UNSET
    completion_token_ids: Sequence[int] | UnsetType = UNSET
    completion_tokens: (
        Annotated[
            str, Field(description="Their text, with special tokens, reasoning and tool calls.")
        ]
        | UnsetType
    ) = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    arrival_time: float | UnsetType = UNSET


class Completion(Answer, kw_only=True):
    """The whole answer to a completion, and each event of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET


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

    def choice(self, choice: ChoiceResult, result: Result) -> CompletionChoice:
        prompt, calls = choice.index // self.request.n, choice.tool_calls
        has_ids = self.request.wants_token_ids
        generated = _tokens(choice.token_ids, choice.raw_text) if has_ids else {}
        scored: Members = {}
        if self.request.logprobs.num_top_of_prompt is not None:
            scored = {"prompt_logprobs": prompt_logprobs(result.scored_prompts[prompt])}
        return CompletionChoice(
            text=choice.text,
            reasoning_content=choice.reasoning or UNSET,
            **(_CALLS.member(calls) if calls else {}),
            **self._prompt(result, prompt, generated),
            **scored,
            **self.ended(choice, result),
        )

    def answer(self, result: Result, **members: Any) -> Completion:
        return Completion(**members)

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
                member = _CALLS.start(event)
        return b"%b,%b" % (self.no_text, member)

    def tokens(self, event: TokensGenerated) -> Chunk:
        return Chunk(self.no_text, _tokens(event.token_ids, event.text))

    def _prompt(
        self, source: Started | Result, prompt: int, generated: Members | None = None
    ) -> Members:
        """Return the ids of a prompt, the `generated` ones, and the text of the prompt."""
        members: dict[str, Any] = {}
        if self.request.wants_token_ids:
            members |= prompt_tokens(source.prompt_ids[prompt], source.prompt_texts[prompt])
        members |= generated or {}
        if self.request.wants_prompt_text:
            members["prompt_text"] = source.prompt_texts[prompt]
        return members


def _tokens(token_ids: Sequence[int], text: str) -> Members:
    return {**completion_tokens(token_ids, text), "token_ids": token_ids}
