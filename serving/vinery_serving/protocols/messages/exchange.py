"""Messages: the parsed request, the two encodings of its answer, and `count_tokens`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, assert_never

from msgspec import UNSET, UnsetType
from pydantic import Field
from pydantic_core import from_json

from vinery_serving.core import events
from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import ContextTooLong, ServingError
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.memory import NO_MEMORY, Memory
from vinery_serving.core.request import Endpoint, GenerationRequest, ToolCall, Unused
from vinery_serving.core.result import Item, ReasoningItem, Result, TextItem
from vinery_serving.core.tools import INVALID_JSON
from vinery_serving.protocols.common import encoding
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.messages.body import CountBody, MessagesBody

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}

# The numbers of a context that is too small: its size, the prompt, the answer. Of an error from
# another process only the text is known.
_NUMBERS: Final = re.compile(r"length is (\d+) tokens.* \((\d+) in .*, (\d+) in the completion\)")


class MessageErrorDetails(encoding.Answer, kw_only=True):
    type: Annotated[str, encoding.one_of("invalid_request_error", *_TYPES.values(), "api_error")]
    message: str


class MessageError(encoding.Answer, kw_only=True):
    """The body of every error of this endpoint, in Anthropic's form."""

    type: Literal["error"] = "error"
    error: MessageErrorDetails
    request_id: str | UnsetType = UNSET


def error_object(error: ServingError, request_id: str | None = None) -> MessageError:
    """Return the body of an error, or the data of an `error` event, which has no request id."""
    kind = _TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    details = MessageErrorDetails(type=kind, message=_message(error))
    return MessageError(error=details, request_id=UNSET if request_id is None else request_id)


def _message(error: ServingError) -> str:
    """Use Anthropic's sentences: clients find them and shorten the conversation."""
    found = _NUMBERS.search(error.message) if isinstance(error, ContextTooLong) else None
    if found is None:
        return error.message
    most, num_prompt, num_output = map(int, found.groups())
    if num_prompt > most or not num_output:
        most = min(most, num_prompt - 1)  # a prompt that fills the context leaves no answer
        return f"prompt is too long: {num_prompt} tokens > {most} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {num_prompt} + {num_output} > "
        f"{most}, decrease input length or `max_tokens` and try again"
    )


SIGNATURE: Final = "vinery"  # clients drop thinking without one; this server reads none

_EVENTS: Final = encoding.one_of(
    "message_start", "content_block_start", "content_block_delta", "content_block_stop",
    "message_delta", "message_stop", "ping", "error",
)  # fmt: skip
_STOP_REASON: Final = encoding.one_of(
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
)


class AnswerText(encoding.Answer, kw_only=True):
    type: Literal["text"] = "text"
    text: str


class AnswerThinking(encoding.Answer, kw_only=True):
    """Reasoning of the model. This server reads no signature."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str


class AnswerToolUse(encoding.Answer, kw_only=True):
    """A call of a tool. Arguments that are no JSON object are its member `INVALID_JSON`."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = AnswerText | AnswerThinking | AnswerToolUse


class ThinkingTokens(encoding.Answer, kw_only=True):
    thinking_tokens: int


class MessageUsage(encoding.Answer, kw_only=True):
    """Tokens of the whole request. The prompt has the first three together."""

    input_tokens: Annotated[int, Field(description="Without the tokens from the prefix cache.")]
    cache_creation_input_tokens: Annotated[
        int, Field(description="0: the prefix cache fills itself.")
    ] = 0
    cache_read_input_tokens: Annotated[int, Field(description="From the prefix cache.")]
    output_tokens: int
    output_tokens_details: ThinkingTokens


class MessageAnswer(encoding.Answer, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: Sequence[AnswerBlock]
    stop_reason: Annotated[
        Annotated[str, _STOP_REASON] | None, Field(description="Null at the start of a stream.")
    ]
    stop_sequence: str | None
    usage: MessageUsage


class MessageDelta(encoding.Answer, kw_only=True):
    """More of a block, or the end of the message."""

    type: (
        Annotated[
            str,
            encoding.one_of("text_delta", "thinking_delta", "signature_delta", "input_json_delta"),
        ]
        | UnsetType
    ) = UNSET
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    partial_json: str | UnsetType = UNSET
    stop_reason: Annotated[str, _STOP_REASON] | UnsetType = UNSET
    stop_sequence: str | UnsetType | None = UNSET


class MessageEvent(encoding.Answer, kw_only=True):
    """An event of a streamed message. The members depend on `type`."""

    type: Annotated[str, _EVENTS]
    message: MessageAnswer | UnsetType = UNSET
    index: int | UnsetType = UNSET
    content_block: AnswerBlock | UnsetType = UNSET
    delta: MessageDelta | UnsetType = UNSET
    usage: MessageUsage | UnsetType = UNSET
    error: MessageErrorDetails | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET


class MessageTokens(encoding.Answer, kw_only=True):
    input_tokens: int


_Counted = events.Progress | events.Completed
Ending = tuple[str, str | None]  # `stop_reason` and `stop_sequence`


def message(
    identity: AnswerIdentity,
    content: Sequence[AnswerBlock],
    usage: events.TokenCounts,
    ending: Ending | None = None,
) -> MessageAnswer:
    """Return the message, by default unfinished."""
    stop_reason, stop_sequence = ending or (None, None)
    return MessageAnswer(
        id=identity.id("msg_"),
        model=identity.model,
        content=content,
        stop_reason=stop_reason,
        stop_sequence=stop_sequence,
        usage=usage_object(usage),
    )


def ending(
    reason: events.FinishReason,
    cause: str | int | None,
    request: GenerationRequest,
    *,
    is_context_full: bool,
) -> Ending:
    """Return `stop_reason` and `stop_sequence`. `refusal` and `pause_turn` never come: this server
    has no classifiers, and runs no tools."""
    match reason:
        case events.FinishReason.TOOL_CALLS:
            return "tool_use", None
        case events.FinishReason.LENGTH if is_context_full:
            return "model_context_window_exceeded", None
        case events.FinishReason.LENGTH:
            return "max_tokens", None
        case events.FinishReason.STOP if isinstance(cause, str) and cause in request.stopping.stop:
            return "stop_sequence", cause
        case events.FinishReason.STOP:
            return "end_turn", None
    assert_never(reason)


def usage_object(usage: events.TokenCounts) -> MessageUsage:
    """Return Anthropic's `usage`. Cached tokens are no `input_tokens` there."""
    return MessageUsage(
        input_tokens=max(0, usage.num_prompt_tokens - usage.num_cached_tokens),
        cache_read_input_tokens=usage.num_cached_tokens,
        output_tokens=usage.num_output_tokens,
        output_tokens_details=ThinkingTokens(thinking_tokens=usage.num_reasoning_tokens),
    )


def block(item: Item) -> AnswerBlock:
    match item:
        case TextItem(text=text):
            return AnswerText(text=text)
        case ReasoningItem(text=text):
            return AnswerThinking(thinking=text, signature=SIGNATURE)
        case ToolCall(id=id_, name=name, arguments=text):
            return AnswerToolUse(id=tool_use_id(id_), name=name, input=input_object(text))
    assert_never(item)


def tool_use_id(call_id: str) -> str:
    """Return the id of a call with Anthropic's prefix."""
    return f"toolu_{call_id.removeprefix('call_')}"


def input_object(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object. Arguments that the token limit has cut keep their complete
    members, as Anthropic's clients read a stream. Other texts become the member `INVALID_JSON`."""
    if not arguments.strip():
        return {}
    try:
        value = from_json(arguments, allow_partial=True, allow_inf_nan=False)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON: arguments}


def _framed(event: MessageEvent) -> bytes:
    return encoding.named_frame(event.type, encoding.json_bytes(event))


PING = _framed(MessageEvent(type="ping"))


class MessagesEncoder(encoding.ItemEncoder[encoding.OpenItem]):
    """Encodes the events of one stream, which has one choice."""

    def __init__(self, identity: AnswerIdentity, request: GenerationRequest) -> None:
        super().__init__()
        self._identity, self._request = identity, request
        self._num_blocks = 0
        self._ending: Ending = ("end_turn", None)
        self._unsent: events.Started | None = None  # waits for the next event

    def _encode(self, event: events.Event) -> bytes:
        if self._unsent is None:
            return super()._encode(event)
        started, self._unsent = self._unsent, None
        known = event.usage if isinstance(event, _Counted) else events.NO_TOKENS
        usage = events.TokenCounts(started.num_prompt_tokens, known.num_cached_tokens)
        unfinished = message(self._identity, (), usage)
        start = _framed(MessageEvent(type="message_start", message=unfinished)) + PING
        return start + super()._encode(event)

    def _start(self, event: events.Started) -> bytes:
        self._unsent = event
        return b""

    def _begin(self, event: encoding.Begin) -> bytes:
        block: AnswerBlock
        match event:
            case events.TextDelta():
                block, names = AnswerText(text=""), (b"text_delta", b"text")
            case events.ReasoningDelta():
                block = AnswerThinking(thinking="", signature="")
                names = b"thinking_delta", b"thinking"
            case events.ToolCallStarted(id=id_, name=name):
                block = AnswerToolUse(id=tool_use_id(id_), name=name, input={})
                names = b"input_json_delta", b"partial_json"
        index = self._num_blocks
        self._num_blocks += 1
        delta = (
            b"event: content_block_delta\ndata: "
            b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":' % (index, *names)
        )
        self._open = encoding.OpenItem(event, delta)
        return _framed(MessageEvent(type="content_block_start", index=index, content_block=block))

    def _delta(self, item: encoding.OpenItem, event: encoding.More) -> bytes:
        return item.delta_open + encoding.json_text(event.text) + b"}}\n\n"

    def _close(self) -> bytes:
        block, self._open = self._open, None
        if block is None:
            return b""
        index, signed = self._num_blocks - 1, b""
        if isinstance(block.begun_by, events.ReasoningDelta):
            delta = MessageDelta(type="signature_delta", signature=SIGNATURE)
            signed = _framed(MessageEvent(type="content_block_delta", index=index, delta=delta))
        return signed + _framed(MessageEvent(type="content_block_stop", index=index))

    def _finish(self, event: events.Finished) -> bytes:
        self._ending = ending(
            event.reason, event.cause, self._request, is_context_full=event.is_context_full
        )
        return self._close()

    def _complete(self, event: events.Completed) -> bytes:
        stop_reason, stop_sequence = self._ending
        delta = MessageDelta(stop_reason=stop_reason, stop_sequence=stop_sequence)
        end = MessageEvent(type="message_delta", delta=delta, usage=usage_object(event.usage))
        return _framed(end) + _framed(MessageEvent(type="message_stop"))

    def _fail(self, error: ServingError) -> bytes:
        return encoding.named_frame("error", encoding.json_bytes(error_object(error)))


def parse(
    body: bytes, dialect: Dialect, *, fingerprint: str | None = None, memory: Memory = NO_MEMORY
) -> MessagesExchange:
    """Read the body of a Messages request, which is never stored. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.MESSAGES, MessagesBody, body)
    return MessagesExchange(_request(wire, dialect, unused), wire.is_obfuscated)


def _request(wire: MessagesBody, dialect: Dialect, unused: Unused) -> GenerationRequest:
    wire.refuse_contradictions()
    request = wire.request(
        Endpoint.MESSAGES, wire.conversation(), dialect, unused=unused, grammar=wire.grammar()
    )
    return wire.with_thinking(request)


@dataclass(frozen=True, slots=True)
class MessagesExchange:
    keep_alive: ClassVar[bytes] = PING
    to_keep: ClassVar[None] = None

    request: GenerationRequest
    is_obfuscated: bool = False

    def encoder(self, identity: AnswerIdentity) -> encoding.Encoder:
        encoder = MessagesEncoder(identity, self.request)
        return encoding.Obfuscated(encoder, identity) if self.is_obfuscated else encoder

    def body(self, identity: AnswerIdentity, result: Result) -> bytes:
        (choice,) = result.choices
        ended = ending(
            choice.finish_reason, choice.cause, self.request, is_context_full=choice.is_context_full
        )
        content = [block(item) for item in choice.items]
        return encoding.json_bytes(message(identity, content, result.usage, ended))


def parse_count(body: bytes, dialect: Dialect) -> GenerationRequest:
    """Read the body of `POST messages/count_tokens`: a Messages request whose `max_tokens` may be
    absent. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.MESSAGES, CountBody, body)
    return _request(wire, dialect, unused)


def count_body(num_tokens: int) -> bytes:
    return encoding.json_bytes(MessageTokens(input_tokens=num_tokens))
