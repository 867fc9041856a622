"""From results and events to bytes: answers as types, JSON, server-sent events, errors and single
tokens, in a form that every tested client reads.

Both encodings of an answer have the same ids, because the ids derive from its identity. Events have
no `id:` lines, no empty `data:` and no NaN, because each of them breaks a client.
"""

import json
from abc import ABC, abstractmethod
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar, Union, get_args

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core import events
from vinery_serving.core.errors import InvalidKey, LimitReached, MethodNotAllowed, ServingError
from vinery_serving.core.events import Token, TopLogprob
from vinery_serving.core.ids import AnswerIdentity

DONE = b"data: [DONE]\n\n"

# A comment before an event or another comment. It has one newline, because some clients read
# a comment and a blank line as an empty event.
KEEP_ALIVE = b": keep-alive\n"

# JSON strings may contain these characters, but some clients split lines at them.
_LINE_ENDS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)

_encode = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, kw_only=True):
    """Base of all types in answers and in the events of streams. The encoders build the objects,
    and the OpenAPI document has the types. JSON has the members in the order of the fields; a
    member that is `UNSET` is absent."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return a strict JSON object, so that tests find members that are no fields."""
        members = {
            field.encode_name: core_schema.typed_dict_field(
                handler.generate_schema(_present(field.type)), required=field.default is not UNSET
            )
            for field in msgspec.structs.fields(cls)
        }
        return core_schema.typed_dict_schema(
            members,
            cls=cls,
            ref=f"{cls.__module__}.{cls.__name__}:{id(cls)}",
            extra_behavior="forbid",
            config={"strict": True},
        )


def _present(kind: Any) -> Any:
    """Return the type of a member that is not absent."""
    options = get_args(kind)
    if UnsetType not in options:
        return kind
    return Union[tuple(each for each in options if each is not UnsetType)]  # noqa: UP007


def one_of(*words: str) -> Any:
    """Return the annotation of a text that is one of these words."""
    return Field(json_schema_extra={"enum": list(words)})


class ErrorDetails(Answer, kw_only=True):
    message: str
    type: Annotated[
        str, one_of("invalid_request_error", "server_error", "requests", "insufficient_quota")
    ]
    param: Annotated[
        str | None, Field(description="The path of the field, such as `messages[2].content`.")
    ]
    code: Annotated[str | None, Field(description="docs/errors.md lists all codes.")]


class Error(Answer, kw_only=True):
    """The body of every error, and the last event of a failed stream."""

    error: ErrorDetails


def json_bytes(value: object) -> bytes:
    """Return `value` as compact JSON without any line separator. NaN and infinities become null."""
    try:
        encoded = _encode(value)
    except OverflowError:
        # Only the standard library writes integers of more than 64 bits.
        plain = msgspec.to_builtins(value)
        encoded = json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    return _on_one_line(encoded)


def json_members(members: Answer | Mapping[str, object]) -> bytes:
    """Return the members of a JSON object without its braces."""
    return json_bytes(members)[1:-1]


def json_text(text: str) -> bytes:
    """Return `text` as a JSON string with its quotes. Runs for every token."""
    encoded = _encode(text)
    return encoded if text.isascii() else _on_one_line(encoded)


def frame(payload: bytes) -> bytes:
    return b"data: %b\n\n" % payload


def named_frame(name: str, payload: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def error_object(error: ServingError) -> Error:
    """Return the body of an error, or an event of a stream."""
    details = ErrorDetails(
        message=error.message, type=error.type, param=error.param, code=error.code
    )
    return Error(error=details)


def error_body(error: ServingError) -> bytes:
    return json_bytes(error_object(error))


def error_headers(error: ServingError) -> dict[str, str]:
    headers = {}
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allowed
    if isinstance(error, InvalidKey):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, LimitReached):
        headers |= error.headers
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.should_retry is not None:
        headers["x-should-retry"] = "true" if error.should_retry else "false"
    return headers


def _on_one_line(encoded: bytes) -> bytes:
    for raw, escaped in _LINE_ENDS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return encoded


class Encoder(Protocol):
    """Encodes events as server-sent events. Holds the state of one stream."""

    def feed(self, event: events.Event) -> bytes:
        """Return the frames of `event` with their blank lines, or b"" for none. OpenAI's streams
        end with `data: [DONE]`, in the frames of `Completed` and `Failed`. No event may follow."""


Begin = events.TextDelta | events.ReasoningDelta | events.ToolCallStarted  # of an item
More = events.TextDelta | events.ReasoningDelta | events.ToolCallDelta  # of an item
_TEXTS = events.TextDelta | events.ReasoningDelta


@dataclass(slots=True)
class OpenItem:
    """The item of a response, or the block of a message, that a stream is writing. `begun_by` is
    the first event; `delta_open` holds the bytes of a delta's frame before the text."""

    begun_by: Begin
    delta_open: bytes


ItemT = TypeVar("ItemT", bound=OpenItem)


class ItemEncoder(ABC, Generic[ItemT]):
    """Encodes a stream whose answer is a list of items: the start of an item closes the item
    before. The choices must come in order."""

    def __init__(self) -> None:
        self._open: ItemT | None = None

    def feed(self, event: events.Event) -> bytes:
        item = self._open
        # Deltas first: every token has one.
        if isinstance(event, _TEXTS) and item is not None and type(item.begun_by) is type(event):
            return self._delta(item, event)
        return self._encode(event)

    def _encode(self, event: events.Event) -> bytes:
        match event:
            case events.TextDelta() | events.ReasoningDelta():
                return self._close() + self._begin(event) + self.feed(event)
            case events.ToolCallDelta():
                return self._delta(self._open_call(event.index), event)
            case events.ToolCallStarted():
                return self._close() + self._begin(event)
            case events.Started():
                return self._start(event)
            case events.Finished():
                return self._finish(event)
            case events.Completed():
                return self._complete(event)
            case events.Failed():
                return self._fail(event.error)
        return b""  # other events are for answers of other forms

    def _open_call(self, index: int) -> ItemT:
        match self._open:
            case OpenItem(begun_by=events.ToolCallStarted(index=at)) as item if at == index:
                return item
        raise ValueError("a delta of a tool call that is not the open item")

    @abstractmethod
    def _begin(self, event: Begin) -> bytes:
        """Open the item that begins with `event`, and return the frames before its first delta."""

    @abstractmethod
    def _delta(self, item: ItemT, event: More) -> bytes: ...

    @abstractmethod
    def _close(self) -> bytes:
        """Return the end of the open item; b"" if none is open."""

    @abstractmethod
    def _start(self, event: events.Started) -> bytes: ...

    @abstractmethod
    def _finish(self, event: events.Finished) -> bytes: ...

    @abstractmethod
    def _complete(self, event: events.Completed) -> bytes: ...

    @abstractmethod
    def _fail(self, error: ServingError) -> bytes: ...


# `stream_options.include_obfuscation`: the size of a delta's frame is a multiple of this number
# of bytes. Few tokens are longer, so most deltas of a stream have the same size.
_BUCKET_BYTES = 32
_PADDING_CLOSE = b'"}\n\n'


class Obfuscated:
    """Pads each delta of another encoder: the sizes of encrypted packets would show words."""

    def __init__(self, encoder: Encoder, identity: AnswerIdentity) -> None:
        self._encoder = encoder
        # Only the length of the padding matters.
        self._padding = (identity.token * _BUCKET_BYTES)[:_BUCKET_BYTES].encode()

    def feed(self, event: events.Event) -> bytes:
        frames = self._encoder.feed(event)
        if not frames or not isinstance(event, More):
            return frames
        return padded(frames, self._padding)


def padded(frames: bytes, padding: bytes = b"0" * _BUCKET_BYTES) -> bytes:
    """Pad the last of these frames, which is a delta. The frames before open the item."""
    start = frames.rfind(b"\ndata: ") + 1
    rest = frames.removesuffix(b"}\n\n") + b',"obfuscation":"'
    num_missing = -(len(rest) - start + len(_PADDING_CLOSE)) % _BUCKET_BYTES
    return rest + padding[:num_missing] + _PADDING_CLOSE


# -- Single tokens

_UNKNOWN = -9999.0  # the value of OpenAI and vLLM for an unknown log-probability
_REPLACED = "\ufffd"  # the text of bytes that are no whole character


class TokenChance(Answer, kw_only=True):
    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogprob(TokenChance, kw_only=True):
    top_logprobs: list[TokenChance]


class CompletionLogprobs(Answer, kw_only=True):
    """The tokens of a completion, or of a chunk, as parallel lists."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class RankedToken(Answer, kw_only=True):
    """The log-probability of a token of the prompt, and its rank; 1 is the most likely."""

    logprob: float | None
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, RankedToken] | None]


def content_logprobs(tokens: Sequence[Token]) -> list[TokenLogprob]:
    """Return the `logprobs.content` of chats, which is the `logprobs` of Responses."""
    return [
        TokenLogprob(
            token=token.text,
            logprob=_known(token.logprob),
            bytes=list(token.raw),
            top_logprobs=[
                TokenChance(token=other.text, logprob=_known(other.logprob), bytes=list(other.raw))
                for other in token.others
            ],
        )
        for token in tokens
    ]


def _known(logprob: float | None) -> float:
    return _UNKNOWN if logprob is None else logprob


class TextLogprobs:
    """The `logprobs` of completions: parallel lists. One object for each choice of a stream,
    because `text_offset` counts on from one delta to the next."""

    def __init__(self, num_chars_before: int = 0) -> None:
        """`num_chars_before`: the `text_offset` of the first token."""
        self._num_chars = num_chars_before
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def of(self, tokens: Sequence[Token]) -> CompletionLogprobs:
        return CompletionLogprobs(
            tokens=[_name(token) for token in tokens],
            token_logprobs=[token.logprob for token in tokens],
            top_logprobs=[_others_by_text(token) for token in tokens],
            text_offset=[self._offset(token.raw) for token in tokens],
        )

    def _offset(self, raw: bytes) -> int:
        """Return the number of characters before a token. A token that begins inside of a
        character has the offset of that character. Invalid bytes count as U+FFFD."""
        is_continued = not raw or raw[0] & 0xC0 == 0x80
        if not is_continued:
            self._num_chars += len(self._decoder.decode(b"", final=True))
        offset = self._num_chars
        self._num_chars += len(self._decoder.decode(raw))
        return offset


def _others_by_text(token: Token) -> dict[str, float] | None:
    """Include the sampled token, as OpenAI does, even if it is not among the most likely."""
    if token.logprob is None:
        return None
    by_text: dict[str, float] = {}
    for other in token.others:
        by_text.setdefault(_name(other), other.logprob)
    by_text.setdefault(_name(token), token.logprob)
    return by_text


def _name(token: Token | TopLogprob) -> str:
    """The text, or as in OpenAI's answers the bytes of a part of a character, `bytes:\\xf0\\x9f`:
    the texts of all parts are equal."""
    try:
        _ = token.raw.decode() if _REPLACED in token.text else ""
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw)
    return token.text


def prompt_logprobs(tokens: Sequence[Token]) -> PromptLogprobs:
    """Return vLLM's `prompt_logprobs`: for each token of the prompt an object by token id, with
    the token itself first; None for the first token, which has no log-probability."""
    return [None if token.logprob is None else _ranked(token) for token in tokens]


def _ranked(token: Token) -> dict[str, RankedToken]:
    others = sorted(token.others, key=lambda other: -other.logprob)
    ranks: list[tuple[Token | TopLogprob, int | None]] = [(token, token.rank)]
    ranks += [(other, rank) for rank, other in enumerate(others, start=1)]
    entries: dict[str, RankedToken] = {}
    for each, rank in ranks:
        entry = RankedToken(logprob=each.logprob, rank=rank, decoded_token=each.text)
        entries.setdefault(str(each.id), entry)
    return entries


def prompt_tokens(token_ids: Sequence[int], text: str) -> dict[str, Any]:
    """Return FastDeploy's members of `return_token_ids` for the prompt. vLLM has
    `prompt_token_ids` too, in the same or another object."""
    return {"prompt_token_ids": token_ids, "prompt_tokens": text}


def completion_tokens(token_ids: Sequence[int], text: str) -> dict[str, Any]:
    """Return FastDeploy's members of `return_token_ids` for the answer. `text` includes special
    tokens, reasoning and tool calls. vLLM's name is `token_ids`."""
    return {"completion_token_ids": token_ids, "completion_tokens": text}
