"""Chat completions: the parsed request, and the two encodings of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

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
from vinery_serving.protocols.chat.body import ChatBody
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.chunks import (
    CalledFunction,
    CalledFunctionDelta,
    Chunk,
    ChunkExchange,
    CustomToolCall,
    FunctionCall,
    FunctionToolCall,
    Members,
    OtherDelta,
    StopReason,
    ToolCallChunk,
    ToolCalls,
    Usage,
)
from vinery_serving.protocols.common.encoding import Answer, json_members, json_text, one_of
from vinery_serving.protocols.common.logprobs import (
    PromptLogprobs,
    TokenLogprob,
    completion_tokens,
    content_logprobs,
    prompt_logprobs,
    prompt_tokens,
)

_FINISH_REASON = one_of("stop", "length", "tool_calls", "function_call")
_PROMPT_TEXT = Field(description="The text of the prompt's tokens.")
_RAW_TEXT = Field(description="Their text, with special tokens, reasoning and tool calls.")


class ChatLogprobs(Answer, kw_only=True):
    """The tokens of a chat's answer, or of a chunk."""

    content: list[TokenLogprob]
    refusal: None = None


class ChatMessage(Answer, kw_only=True):
    """The model's answer. Reasoning has two names, because clients read one or the other."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[FunctionToolCall | CustomToolCall] | UnsetType = UNSET
    function_call: CalledFunction | UnsetType = UNSET
    # FastDeploy's members, for requests with `return_token_ids`.
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_tokens: Annotated[str, _PROMPT_TEXT] | UnsetType = UNSET
    completion_token_ids: Sequence[int] | UnsetType = UNSET
    completion_tokens: Annotated[str, _RAW_TEXT] | UnsetType = UNSET


class ChatChoice(Answer, kw_only=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Annotated[str, _FINISH_REASON]
    stop_reason: StopReason
    token_ids: Sequence[int] | UnsetType = UNSET
    arrival_time: float | UnsetType = UNSET


class ChatCompletion(Answer, kw_only=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None
    service_tier: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatDelta(Answer, kw_only=True):
    """More of an answer. The role comes in the first chunk."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: (
        Annotated[str | None, Field(description="Null in the first chunk under /v3.")] | UnsetType
    ) = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallChunk] | UnsetType = UNSET
    function_call: CalledFunctionDelta | UnsetType = UNSET
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_tokens: Annotated[str, _PROMPT_TEXT] | UnsetType = UNSET
    completion_token_ids: Sequence[int] | UnsetType = UNSET
    completion_tokens: Annotated[str, _RAW_TEXT] | UnsetType = UNSET


class ChatChunkChoice(Answer, kw_only=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: Annotated[str, _FINISH_REASON] | None
    stop_reason: StopReason | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET
    arrival_time: float | UnsetType = UNSET


class ChatCompletionChunk(Answer, kw_only=True):
    """An event of a streamed chat. The event with the total usage has no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | None
    service_tier: str | UnsetType = UNSET
    choices: list[ChatChunkChoice]
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    usage: Usage | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> ChatExchange:
    """Read the body of a chat completion request. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.CHAT, ChatBody, body, dialect)
    wire.refuse_contradictions()
    request = wire.request(
        Endpoint.CHAT,
        wire.conversation(),
        dialect,
        unused=unused,
        grammar=wire.constraint(wire.response_format),
        shows_arrival=wire.return_arrival_time,
    )
    # Only one tier exists.
    tier = {} if wire.service_tier is None else {"service_tier": "default"}
    return ChatExchange(
        request,
        wire.includes_usage,
        wire.is_obfuscated,
        head={"system_fingerprint": fingerprint, **tier},
        metadata={} if wire.metadata is None else {"metadata": wire.metadata},
        calls=FunctionCall() if wire.functions else ToolCalls(),
    )


@dataclass(frozen=True, slots=True)
class ChatExchange(ChunkExchange):
    """A chat completion request. Its answer has role, id, type and name once."""

    id_prefix = "chatcmpl-"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    open = b'"delta":{'
    close = b"}"
    text_open = b'"content":'

    calls: ToolCalls = field(default_factory=ToolCalls)

    def choice(self, choice: ChoiceResult, result: Result) -> ChatChoice:
        calls, reasoning = choice.tool_calls, choice.reasoning or UNSET
        tokens: Members = {}
        if self.request.wants_token_ids:
            tokens = {
                **prompt_tokens(result.prompt_ids[0], result.prompt_texts[0]),
                **completion_tokens(choice.token_ids, choice.raw_text),
            }
        message = ChatMessage(
            content=choice.text or (None if calls else ""),
            # A client reads one of the two names.
            reasoning_content=reasoning,
            reasoning=reasoning,
            **(self.calls.member(calls) if calls else {}),
            **tokens,
        )
        ids = choice.token_ids if self.request.wants_token_ids else UNSET
        return ChatChoice(message=message, token_ids=ids, **self.ended(choice, result))

    def answer(self, result: Result, **members: Any) -> ChatCompletion:
        if self.request.logprobs.num_top_of_prompt is not None:
            members["prompt_logprobs"] = prompt_logprobs(result.scored_prompts[0])
        return ChatCompletion(**members, **self._prompt(result))

    def finish_reason(self, reason: FinishReason) -> str:
        return self.calls.reason(reason)

    def logprobs(
        self, source: Started | Result, choice: int, *, is_streamed: bool
    ) -> Callable[[Sequence[Token]], object]:
        def logprobs(tokens: Sequence[Token]) -> object:
            if is_streamed and not tokens:
                return None
            return ChatLogprobs(content=content_logprobs(tokens))

        return logprobs

    def start(self, event: Started, choice: int) -> Chunk:
        """Every choice has a first chunk. Clients expect the choices in order."""
        tokens: Members = {}
        if self.request.wants_token_ids:
            tokens = prompt_tokens(event.prompt_ids[0], event.prompt_texts[0])
        content = None if self.request.dialect.shows_first_token else ""
        delta = ChatDelta(role="assistant", content=content, **tokens)
        return Chunk(json_members(delta), chunk_extras=self._prompt(event))

    def delta(self, event: OtherDelta) -> bytes:
        match event:
            case ReasoningDelta():
                text = json_text(event.text)
                return b'"reasoning_content":' + text + b',"reasoning":' + text
            case ToolCallDelta():
                return self.calls.delta(event)
            case ToolCallStarted():
                return self.calls.start(event)

    def tokens(self, event: TokensGenerated) -> Chunk:
        delta = ChatDelta(**completion_tokens(event.token_ids, event.text))
        return Chunk(json_members(delta), {"token_ids": event.token_ids})

    def _prompt(self, source: Started | Result) -> Members:
        """Return the ids and the text of the prompt. A chat has one prompt."""
        members: dict[str, Any] = {}
        if self.request.wants_token_ids:
            members["prompt_token_ids"] = source.prompt_ids[0]
        if self.request.wants_prompt_text:
            members["prompt_text"] = source.prompt_texts[0]
        return members
