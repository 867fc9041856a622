"""Chat completions: the parsed request, and the two encodings of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
from vinery_serving.protocols.chat.body import ChatBody
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.calls import FunctionCall, ToolCalls
from vinery_serving.protocols.common.chunks import Chunk, ChunkExchange, Members, OtherDelta
from vinery_serving.protocols.common.encoding import json_members, json_text
from vinery_serving.protocols.common.logprobs import (
    completion_tokens,
    content_logprobs,
    prompt_logprobs,
    prompt_tokens,
)


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

    def content(self, choice: ChoiceResult, result: Result) -> Members:
        calls = choice.tool_calls
        message: dict[str, object] = {
            "role": "assistant",
            "content": choice.text or (None if calls else ""),
            "refusal": None,
        }
        if choice.reasoning:
            # A client reads one of the two names.
            message |= {"reasoning_content": choice.reasoning, "reasoning": choice.reasoning}
        if calls:
            message |= self.calls.member(calls)
        if self.request.wants_token_ids:
            message |= prompt_tokens(result.prompt_ids[0], result.prompt_texts[0])
            message |= completion_tokens(choice.token_ids, choice.raw_text)
        return {"message": message}

    def choice_extras(self, choice: ChoiceResult, result: Result) -> Members:
        return {"token_ids": choice.token_ids} if self.request.wants_token_ids else {}

    def answer_extras(self, result: Result) -> Members:
        members = self._prompt(result)
        if self.request.logprobs.num_top_of_prompt is not None:
            members["prompt_logprobs"] = prompt_logprobs(result.scored_prompts[0])
        return members

    def finish_reason(self, reason: FinishReason) -> str:
        return self.calls.reason(reason)

    def logprobs(
        self, source: Started | Result, choice: int, *, is_streamed: bool
    ) -> Callable[[Sequence[Token]], object]:
        def logprobs(tokens: Sequence[Token]) -> object:
            if is_streamed and not tokens:
                return None
            return {"content": content_logprobs(tokens), "refusal": None}

        return logprobs

    def start(self, event: Started, choice: int) -> Chunk:
        """Every choice has a first chunk. Clients expect the choices in order."""
        shows_first_token = self.request.dialect.shows_first_token
        content = None if shows_first_token else ""
        delta: dict[str, object] = {"role": "assistant", "content": content}
        if self.request.wants_token_ids:
            delta |= prompt_tokens(event.prompt_ids[0], event.prompt_texts[0])
        return Chunk(json_members(delta), chunk_extras=self._prompt(event))

    def delta(self, event: OtherDelta) -> bytes:
        match event:
            case ReasoningDelta():
                text = json_text(event.text)
                return b'"reasoning_content":' + text + b',"reasoning":' + text
            case ToolCallDelta():
                return self.calls.delta(event)
            case ToolCallStarted():
                call = ToolCall(event.id, event.name, "", event.is_custom)
                return self.calls.start(event.index, call)

    def tokens(self, event: TokensGenerated) -> Chunk:
        delta = completion_tokens(event.token_ids, event.text)
        return Chunk(json_members(delta), {"token_ids": event.token_ids})

    def _prompt(self, source: Started | Result) -> dict[str, object]:
        """Return the ids and the text of the prompt. A chat has one prompt."""
        members: dict[str, object] = {}
        if self.request.wants_token_ids:
            members["prompt_token_ids"] = source.prompt_ids[0]
        if self.request.wants_prompt_text:
            members["prompt_text"] = source.prompt_texts[0]
        return members
