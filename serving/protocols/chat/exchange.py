"""Chat completions: the parsed request, and the two encodings of its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

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
from serving.core.logprobs import Token
from serving.core.request import Dialect, Endpoint, GenerationRequest
from serving.core.result import Call, ChoiceResult, CustomCall, Result
from serving.protocols.chat.body import ChatBody
from serving.protocols.common.chunks import ChunkFrames, head_members, usage_object
from serving.protocols.common.encoding import json_bytes, json_text
from serving.protocols.common.exchange import Encoder, obfuscated
from serving.protocols.common.logprobs import (
    completion_tokens,
    content_logprobs,
    prompt_logprobs,
    prompt_tokens,
)
from serving.protocols.common.refused import read_body


class ToolCalls:
    """The calls of an answer as `tool_calls`: any number, each with an id and an index."""

    def member(self, calls: Sequence[Call]) -> dict[str, object]:
        """Return the member of a message for its calls, at least one."""
        return {"tool_calls": [_call(call) for call in calls]}

    def start(self, event: ToolCallStarted) -> bytes:
        """Return the members of a delta for the start of a call."""
        kind = b"custom" if event.is_custom else b"function"
        return b'"tool_calls":[{"index":%d,"id":%b,"type":"%b","%b":%b}]' % (
            event.index,
            json_text(event.id),
            kind,
            kind,
            _start(event),
        )

    def delta(self, event: ToolArgsDelta | ToolInputDelta) -> bytes:
        """Return the members of a delta for more arguments or input of a call."""
        more = b'"custom":{"input"' if isinstance(event, ToolInputDelta) else _ARGUMENTS
        return b'"tool_calls":[{"index":%d,%b:%b}}]' % (event.index, more, json_text(event.text))

    def reason(self, reason: FinishReason) -> str:
        """Return the `finish_reason`."""
        return reason.value


class FunctionCall(ToolCalls):
    """The answer's first call as `function_call`, for requests with the deprecated `functions`.
    It has no id. The form has no further calls and no custom tools."""

    def member(self, calls: Sequence[Call]) -> dict[str, object]:
        return {"function_call": _called(calls[0])}

    def start(self, event: ToolCallStarted) -> bytes:
        return b'"function_call":%b' % _start(event) if event.index == 0 else b""

    def delta(self, event: ToolArgsDelta | ToolInputDelta) -> bytes:
        if event.index or isinstance(event, ToolInputDelta):
            return b""
        return b'"function_call":{"arguments":%b}' % json_text(event.text)

    def reason(self, reason: FinishReason) -> str:
        return "function_call" if reason is FinishReason.TOOL_CALLS else reason.value


_ARGUMENTS: Final = b'"function":{"arguments"'
TOOL_CALLS: Final = ToolCalls()
FUNCTION_CALL: Final = FunctionCall()


def _call(call: Call) -> dict[str, object]:
    kind = "custom" if isinstance(call, CustomCall) else "function"
    return {"id": call.id, "type": kind, kind: _called(call)}


def _called(call: Call) -> dict[str, object]:
    if isinstance(call, CustomCall):
        return {"name": call.name, "input": call.input}
    return {"name": call.name, "arguments": call.arguments}


def _start(event: ToolCallStarted) -> bytes:
    return json_bytes({"name": event.name, "input" if event.is_custom else "arguments": ""})


def parse(body: bytes, dialect: Dialect, *, fingerprint: str | None = None) -> ChatExchange:
    """Read the body of a chat completion request. Raises `InvalidRequest`."""
    wire = read_body(Endpoint.CHAT, ChatBody, body)
    wire.refuse_contradictions()
    request = wire.request(
        Endpoint.CHAT, wire.conversation(), dialect, grammar=wire.constraint(wire.response_format)
    )
    return ChatExchange(
        request,
        wire.includes_usage,
        wire.service_tier is not None,
        fingerprint,
        is_obfuscated=wire.is_obfuscated,
        metadata=wire.metadata,
        calls=FUNCTION_CALL if wire.functions else TOOL_CALLS,
    )


@dataclass(frozen=True, slots=True)
class ChatExchange:
    """A chat completion request, and the values of it that the answer repeats."""

    request: GenerationRequest
    includes_usage: bool = False
    echoes_tier: bool = False
    fingerprint: str | None = None
    is_obfuscated: bool = False
    metadata: Mapping[str, str] | None = None
    calls: ToolCalls = TOOL_CALLS

    def encoder(self, identity: AnswerIdentity) -> Encoder:
        members = self._members(identity, "chat.completion.chunk")
        frames = ChunkFrames(members, includes_usage=self.includes_usage)
        encoder = ChatEncoder(frames, self.request, self.calls)
        return obfuscated(encoder, identity, is_wanted=self.is_obfuscated)

    def body(self, identity: AnswerIdentity, result: Result) -> bytes:
        choices = [_choice(self.request, choice, result, self.calls) for choice in result.choices]
        usage = usage_object(result.usage)
        members = self._members(identity, "chat.completion")
        # OpenAI's chunks have no `metadata`.
        metadata = {} if self.metadata is None else {"metadata": self.metadata}
        prompt = _prompt_members(self.request, result)
        return json_bytes({**members, **metadata, "choices": choices, "usage": usage, **prompt})

    def _members(self, identity: AnswerIdentity, kind: str) -> dict[str, object]:
        # Only one tier exists.
        tier = {"service_tier": "default"} if self.echoes_tier else {}
        return {**head_members(identity, "chatcmpl-", kind, self.fingerprint), **tier}


def _choice(
    request: GenerationRequest, choice: ChoiceResult, result: Result, form: ToolCalls
) -> dict[str, object]:
    has_logprobs = request.logprobs.num_top is not None
    message, token_ids = _message(choice, form), {}
    if request.wants_token_ids:
        message |= prompt_tokens(result.prompt_ids[0], result.prompt_texts[0])
        message |= completion_tokens(choice.token_ids, choice.raw_text)
        token_ids = {"token_ids": list(choice.token_ids)}
    return {
        "index": choice.index,
        "message": message,
        "logprobs": _logprobs(choice.tokens) if has_logprobs else None,
        "finish_reason": form.reason(choice.finish_reason),
        "stop_reason": choice.cause,
        **token_ids,
    }


def _logprobs(tokens: Sequence[Token]) -> dict[str, object]:
    return {"content": content_logprobs(tokens), "refusal": None}


def _prompt_ids_and_text(
    request: GenerationRequest, ids: Sequence[Sequence[int]], texts: Sequence[str]
) -> dict[str, object]:
    """Return the members about the prompt. A chat has one prompt."""
    members: dict[str, object] = {}
    if request.wants_token_ids:
        members["prompt_token_ids"] = list(ids[0])
    if request.wants_prompt_text:
        members["prompt_text"] = texts[0]
    return members


def _prompt_members(request: GenerationRequest, result: Result) -> dict[str, object]:
    """Return all members about the prompt that the client asked for."""
    members = _prompt_ids_and_text(request, result.prompt_ids, result.prompt_texts)
    if request.logprobs.num_top_of_prompt is not None:
        members["prompt_logprobs"] = prompt_logprobs(result.scored_prompts[0])
    return members


def _message(choice: ChoiceResult, form: ToolCalls) -> dict[str, object]:
    calls = choice.tool_calls
    message: dict[str, object] = {
        "role": "assistant",
        "content": choice.text or (None if calls else ""),
        "refusal": None,
    }
    if choice.reasoning:
        # A client reads one of the two names.
        message |= {"reasoning_content": choice.reasoning, "reasoning": choice.reasoning}
    return message | form.member(calls) if calls else message


class ChatEncoder:
    """Encodes events as chunks. Clients concatenate the strings of all deltas, so the encoder
    sends role, id, type and name once."""

    def __init__(self, frames: ChunkFrames, request: GenerationRequest, calls: ToolCalls) -> None:
        choices = range(request.num_choices)
        self._frames = frames
        self._request = request
        self._calls = calls
        self._opens = [frames.open_choice(at) + b'"delta":{' for at in choices]
        self._text_opens = [start + b'"content":' for start in self._opens]

    def feed(self, event: Event) -> bytes:
        match event:
            case TextDelta(tokens=()):
                text = json_text(event.text)
                return self._text_opens[event.choice] + text + _NO_FINISH + self._frames.close
            case TextDelta():
                return self._text_and_tokens(event)
            case ReasoningDelta():
                return self._delta(event.choice, _reasoning(json_text(event.text)))
            case ToolArgsDelta() | ToolInputDelta():
                return self._delta(event.choice, self._calls.delta(event))
            case ToolCallStarted():
                return self._delta(event.choice, self._calls.start(event))
            case Started():
                return self._start(event)
            case TokensGenerated():
                members = json_bytes(completion_tokens(event.token_ids, event.text))[1:-1]
                ids = json_bytes(list(event.token_ids))
                return self._delta(event.choice, members, b',"token_ids":' + ids)
            case PromptScored():
                return b""  # only whole answers have it
            case Finished():
                reason = self._calls.reason(event.reason).encode()
                finish = b'},"logprobs":null,"finish_reason":"%b","stop_reason":%b' % (
                    reason,
                    json_bytes(event.cause),
                )
                return self._opens[event.choice] + finish + self._frames.close
            case Progress() | Completed() | Failed():
                return self._frames.feed(event)
            case _:
                assert_never(event)

    def _start(self, event: Started) -> bytes:
        """Encode a first chunk for each choice. Clients expect the choices in order."""
        first, close = _FIRST, self._frames.close
        prompt = _prompt_ids_and_text(self._request, event.prompt_ids, event.prompt_texts)
        if prompt:
            close = self._frames.closing(**prompt)
        if self._request.wants_token_ids:
            tokens = prompt_tokens(event.prompt_ids[0], event.prompt_texts[0])
            first += b"," + json_bytes(tokens)[1:-1]
        return b"".join(start + first + _NO_FINISH + close for start in self._opens)

    def _delta(self, choice: int, members: bytes, beside: bytes = b"") -> bytes:
        if not members and not beside:
            return b""
        return self._opens[choice] + members + _NO_FINISH + beside + self._frames.close

    def _text_and_tokens(self, event: TextDelta) -> bytes:
        finish = b'},"logprobs":%b,"finish_reason":null' % json_bytes(_logprobs(event.tokens))
        text = json_text(event.text)
        return self._text_opens[event.choice] + text + finish + self._frames.close


_FIRST = b'"role":"assistant","content":""'
_NO_FINISH = b'},"logprobs":null,"finish_reason":null'


def _reasoning(text: bytes) -> bytes:
    return b'"reasoning_content":%b,"reasoning":%b' % (text, text)
