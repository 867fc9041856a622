"""Legacy completions: body to request, events to chunks, result to answer.

Prompts are raw, so no parser looks for thoughts or tool calls in the output. What is
fed as such all the same is shown as text: the protocol has no other place for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, assert_never

from pydantic import Field, PlainValidator

from serving.core.errors import InvalidRequest, MissingParameter
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
from serving.core.request import Dialect, Endpoint, GenerationRequest, RawPrompts, ToolCall
from serving.core.result import ChoiceResult, CustomCall, Item, Result
from serving.protocols import token_ids as token_members
from serving.protocols.base import Encoder
from serving.protocols.chunks import ChunkFrames, usage_object
from serving.protocols.constraints import ResponseFormat
from serving.protocols.fields import TokenId
from serving.protocols.generation import GenerationBody
from serving.protocols.logprobs import TextLogprobs, prompt_logprobs
from serving.protocols.obfuscation import obfuscated
from serving.protocols.reading import invalid
from serving.protocols.refused import read_body
from serving.protocols.sse import json_bytes, json_text
from serving.protocols.steering import TopLogprobs

Prompt = str | tuple[int, ...]

# Engines take token ids as int32.
_MAX_TOKEN_ID = 2**31 - 1

# Far above what evaluation tools batch, and small enough to keep state for each.
_MAX_CHOICES = 2048


def _read_prompts(value: object) -> tuple[Prompt, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise invalid("must be a string, an array of strings, or one or more arrays of token ids")
    if not value:
        raise invalid("must not be empty")
    if all(isinstance(entry, str) for entry in value):
        return tuple(value)
    if all(isinstance(entry, list) for entry in value):
        return tuple(_token_ids(entry) for entry in value)
    return (_token_ids(value),)


def _token_ids(value: list[object]) -> tuple[int, ...]:
    if not value:
        raise invalid("must not hold an empty array of token ids")
    ids = tuple(entry for entry in value if type(entry) is int and 0 <= entry <= _MAX_TOKEN_ID)
    if len(ids) != len(value):
        raise invalid("must hold strings only, or token ids only: integers from 0")
    return ids


def _read_token_ids(value: object) -> tuple[Prompt, ...]:
    """One or more prompts; FastDeploy's clients send [] for none."""
    if value == []:
        return ()
    prompts = _read_prompts(value)
    if any(isinstance(prompt, str) for prompt in prompts):
        raise invalid("must be one or more arrays of token ids")
    return prompts


_Texts = Annotated[list[str], Field(min_length=1)]
_Ids = Annotated[list[TokenId], Field(min_length=1)]
_ManyIds = Annotated[list[_Ids], Field(min_length=1)]
Prompts = Annotated[
    tuple[Prompt, ...],
    PlainValidator(_read_prompts, json_schema_input_type=str | _Texts | _Ids | _ManyIds),
]
TokenIdPrompts = Annotated[
    tuple[Prompt, ...],
    PlainValidator(_read_token_ids, json_schema_input_type=list[TokenId] | _ManyIds),
]


class CompletionsBody(GenerationBody):
    """The body of a completion request."""

    prompt: Prompts | None = None
    response_format: ResponseFormat | None = None
    # FastDeploy's: goes before the prompt, whose text is then not encoded.
    prompt_token_ids: TokenIdPrompts | None = None
    suffix: str | None = None
    echo: bool | None = None
    logprobs: TopLogprobs | None = None
    # Clients that want nothing but the prompt's own tokens ask for 0.
    max_tokens: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None

    @property
    def num_top_logprobs(self) -> int | None:
        return self.logprobs

    def prompts(self) -> RawPrompts:
        """The prompts. Raises `InvalidRequest` when there is none, and when they ask for
        too many answers."""
        prompts = self.prompt_token_ids or self.prompt
        if prompts is None:
            raise MissingParameter("`prompt` is required.", param="prompt")
        if len(prompts) * (self.n or 1) > _MAX_CHOICES:
            raise InvalidRequest(
                f"`prompt` asks for more than {_MAX_CHOICES} answers: prompts times `n`.",
                param="prompt",
            )
        return RawPrompts(prompts, echo=bool(self.echo), suffix=self.suffix or None)

    def refuse_contradictions(self) -> None:
        super().refuse_contradictions()
        if self.max_tokens == 0 and not self.echo and self.prompt_logprobs is None:
            raise InvalidRequest(
                "`max_tokens` must be at least 1 unless `echo` is true.", param="max_tokens"
            )


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> CompletionsExchange:
    """Read a completion request. Raises `InvalidRequest`."""
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
    """A completion request, and how to answer it."""

    request: GenerationRequest
    includes_usage: bool = False
    fingerprint: str | None = None
    is_obfuscated: bool = False

    def encoder(self, head: AnswerIdentity) -> Encoder:
        frames = ChunkFrames(self._members(head), includes_usage=self.includes_usage)
        encoder = CompletionsEncoder(frames, self.request)
        return obfuscated(encoder, head, is_wanted=self.is_obfuscated)

    def body(self, head: AnswerIdentity, result: Result) -> bytes:
        choices = [_choice(self.request, choice, result) for choice in result.choices]
        usage = usage_object(result.usage)
        return json_bytes({**self._members(head), "choices": choices, "usage": usage})

    def _members(self, head: AnswerIdentity) -> dict[str, object]:
        """Chunks and whole answers have the same object name here."""
        return {
            "id": head.id("cmpl-"),
            "object": "text_completion",
            "created": head.created_at,
            "model": head.model,
            "system_fingerprint": self.fingerprint,
        }


def _choice(request: GenerationRequest, choice: ChoiceResult, result: Result) -> dict[str, object]:
    text = "".join(_shown(item) for item in choice.items)
    tells = request.logprobs.num_top is not None
    prompt = choice.index // request.n
    members: dict[str, object] = {
        "index": choice.index,
        "text": text,
        "logprobs": TextLogprobs().of(choice.tokens) if tells else None,
        "finish_reason": _finish_reason(choice.finish_reason),
        "stop_reason": choice.cause,
    }
    if request.wants_token_ids:
        members |= token_members.of_prompt(result.prompt_ids[prompt], result.prompt_texts[prompt])
        members |= _tokens(choice.token_ids, choice.raw_text)
    if request.wants_prompt_text:
        members["prompt_text"] = result.prompt_texts[prompt]
    if request.logprobs.num_top_of_prompt is not None:
        members["prompt_logprobs"] = prompt_logprobs(result.scored_prompts[prompt])
    return members


def _tokens(token_ids: Sequence[int], text: str) -> dict[str, object]:
    return {**token_members.of_answer(token_ids, text), "token_ids": list(token_ids)}


def _shown(item: Item) -> str:
    match item:
        case ToolCall():
            return item.arguments
        case CustomCall():
            return item.input
        case _:
            return item.text


def _finish_reason(reason: FinishReason) -> str:
    """Strict clients know no tool calls here."""
    return (FinishReason.STOP if reason is FinishReason.TOOL_CALLS else reason).value


class CompletionsEncoder:
    """Events to chunks."""

    def __init__(self, frames: ChunkFrames, request: GenerationRequest) -> None:
        choices = range(request.num_choices)
        self._frames = frames
        self._request = request
        self._opens = [frames.open_choice(at) + b'"text":' for at in choices]
        tells = request.logprobs.num_top is not None
        self._logprobs = [TextLogprobs() for _ in choices] if tells else None

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
                return self._beside(event.choice, _tokens(event.token_ids, event.text))
            case ToolCallStarted() | PromptScored():
                return b""  # the latter is told in whole answers only
            case Finished():
                reason = _finish_reason(event.reason).encode()
                finish = b'"","logprobs":null,"finish_reason":"%b","stop_reason":%b' % (
                    reason,
                    json_bytes(event.cause),
                )
                return self._opens[event.choice] + finish + self._frames.close
            case Progress():
                self._frames.note(event.usage)
                return b""
            case Completed():
                return self._frames.end(event.usage)
            case Failed():
                return self._frames.fail(event.error)
            case _:
                assert_never(event)

    def _prompts(self, event: Started) -> bytes:
        """Each choice tells of its prompt."""
        frames: list[bytes] = []
        for choice in range(len(self._opens)):
            members: dict[str, object] = {}
            at = choice // self._request.n
            if self._request.wants_token_ids:
                members |= token_members.of_prompt(event.prompt_ids[at], event.prompt_texts[at])
            if self._request.wants_prompt_text:
                members["prompt_text"] = event.prompt_texts[at]
            frames += [self._beside(choice, members)] if members else []
        return b"".join(frames)

    def _beside(self, choice: int, members: dict[str, object]) -> bytes:
        """A chunk without text, with more members."""
        more = b"," + json_bytes(members)[1:-1]
        return self._opens[choice] + b'""' + _NO_FINISH + more + self._frames.close


_NO_FINISH = b',"logprobs":null,"finish_reason":null'
