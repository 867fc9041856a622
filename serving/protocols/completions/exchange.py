"""Completions: the parsed request, and the two encodings of its answer.

Prompts are raw, so the output is not parsed for reasoning and tool calls. The protocol has no
members for them; if such events come all the same, they are shown as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from serving.core.events import (
    Completed,
    Event,
    Failed,
    Finished,
    FinishReason,
    Progress,
    PromptScored,
    ReasoningDelta,
    Started,
    TextDelta,
    TokensGenerated,
    ToolArgsDelta,
    ToolCallStarted,
    ToolInputDelta,
)
from serving.core.ids import AnswerIdentity
from serving.core.request import Dialect, Endpoint, GenerationRequest, ToolCall
from serving.core.result import ChoiceResult, CustomCall, Item, Result
from serving.protocols.common.chunks import ChunkFrames, head_members, usage_object
from serving.protocols.common.encoding import json_bytes, json_text
from serving.protocols.common.exchange import Encoder, obfuscated
from serving.protocols.common.logprobs import (
    TextLogprobs,
    completion_tokens,
    prompt_logprobs,
    prompt_tokens,
)
from serving.protocols.common.refused import read_body
from serving.protocols.completions.body import CompletionsBody


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> CompletionsExchange:
    """Read the body of a completion request. Raises `InvalidRequest`."""
    wire = read_body(Endpoint.COMPLETIONS, CompletionsBody, body)
    wire.refuse_contradictions()
    limit = dialect.completions_max_tokens
    request = wire.request(
        Endpoint.COMPLETIONS,
        wire.prompts(),
        dialect,
        default_limit=limit,
        grammar=wire.constraint(wire.response_format),
    )
    return CompletionsExchange(
        request, wire.includes_usage, fingerprint, is_obfuscated=wire.is_obfuscated
    )


@dataclass(frozen=True, slots=True)
class CompletionsExchange:
    """A completion request, and the values of it that the answer repeats."""

    request: GenerationRequest
    includes_usage: bool = False
    fingerprint: str | None = None
    is_obfuscated: bool = False

    def encoder(self, identity: AnswerIdentity) -> Encoder:
        frames = ChunkFrames(self._members(identity), includes_usage=self.includes_usage)
        encoder = CompletionsEncoder(frames, self.request)
        return obfuscated(encoder, identity, is_wanted=self.is_obfuscated)

    def body(self, identity: AnswerIdentity, result: Result) -> bytes:
        choices = [_choice(self.request, choice, result) for choice in result.choices]
        usage = usage_object(result.usage)
        return json_bytes({**self._members(identity), "choices": choices, "usage": usage})

    def _members(self, identity: AnswerIdentity) -> dict[str, object]:
        """Chunks and whole answers have the same `object`."""
        return head_members(identity, "cmpl-", "text_completion", self.fingerprint)


def _choice(request: GenerationRequest, choice: ChoiceResult, result: Result) -> dict[str, object]:
    text = "".join(_shown(item) for item in choice.items)
    has_logprobs = request.logprobs.num_top is not None
    prompt = choice.index // request.n
    members: dict[str, object] = {
        "index": choice.index,
        "text": text,
        "logprobs": TextLogprobs().of(choice.tokens) if has_logprobs else None,
        "finish_reason": _finish_reason(choice.finish_reason),
        "stop_reason": choice.cause,
    }
    if request.wants_token_ids:
        members |= prompt_tokens(result.prompt_ids[prompt], result.prompt_texts[prompt])
        members |= _tokens(choice.token_ids, choice.raw_text)
    if request.wants_prompt_text:
        members["prompt_text"] = result.prompt_texts[prompt]
    if request.logprobs.num_top_of_prompt is not None:
        members["prompt_logprobs"] = prompt_logprobs(result.scored_prompts[prompt])
    return members


def _tokens(token_ids: Sequence[int], text: str) -> dict[str, object]:
    return {**completion_tokens(token_ids, text), "token_ids": list(token_ids)}


def _shown(item: Item) -> str:
    match item:
        case ToolCall():
            return item.arguments
        case CustomCall():
            return item.input
        case _:
            return item.text


def _finish_reason(reason: FinishReason) -> str:
    """Strict clients refuse `tool_calls` in completions."""
    return (FinishReason.STOP if reason is FinishReason.TOOL_CALLS else reason).value


class CompletionsEncoder:
    """Encodes events as chunks."""

    def __init__(self, frames: ChunkFrames, request: GenerationRequest) -> None:
        choices = range(request.num_choices)
        self._frames = frames
        self._request = request
        self._opens = [frames.open_choice(at) + b'"text":' for at in choices]
        has_logprobs = request.logprobs.num_top is not None
        self._logprobs = [TextLogprobs() for _ in choices] if has_logprobs else None

    def feed(self, event: Event) -> bytes:
        match event:
            case TextDelta() if self._logprobs is not None:
                logprobs = self._logprobs[event.choice].of(event.tokens)
                finish = b',"logprobs":%b,"finish_reason":null' % json_bytes(logprobs)
                return (
                    self._opens[event.choice] + json_text(event.text) + finish + self._frames.close
                )
            case TextDelta() | ReasoningDelta() | ToolArgsDelta() | ToolInputDelta():
                text = json_text(event.text)
                return self._opens[event.choice] + text + _NO_FINISH + self._frames.close
            case Started():
                return self._prompts(event)
            case TokensGenerated():
                return self._chunk_without_text(event.choice, _tokens(event.token_ids, event.text))
            case ToolCallStarted() | PromptScored():
                return b""  # only whole answers have scored prompts
            case Finished():
                reason = _finish_reason(event.reason).encode()
                finish = b'"","logprobs":null,"finish_reason":"%b","stop_reason":%b' % (
                    reason,
                    json_bytes(event.cause),
                )
                return self._opens[event.choice] + finish + self._frames.close
            case Progress() | Completed() | Failed():
                return self._frames.feed(event)
            case _:
                assert_never(event)

    def _prompts(self, event: Started) -> bytes:
        """Encode the members about the prompt of each choice."""
        frames: list[bytes] = []
        for choice in range(len(self._opens)):
            members: dict[str, object] = {}
            at = choice // self._request.n
            if self._request.wants_token_ids:
                members |= prompt_tokens(event.prompt_ids[at], event.prompt_texts[at])
            if self._request.wants_prompt_text:
                members["prompt_text"] = event.prompt_texts[at]
            frames += [self._chunk_without_text(choice, members)] if members else []
        return b"".join(frames)

    def _chunk_without_text(self, choice: int, members: dict[str, object]) -> bytes:
        """Encode a chunk that has only `members`."""
        more = b"," + json_bytes(members)[1:-1]
        return self._opens[choice] + b'""' + _NO_FINISH + more + self._frames.close


_NO_FINISH = b',"logprobs":null,"finish_reason":null'
