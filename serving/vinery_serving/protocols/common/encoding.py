"""From results and events to bytes: answers as types, JSON, server-sent events and errors, in a
form that every tested client reads.

Both encodings of an answer have the same ids, because the ids derive from its identity. Events have
no `id:` lines, no empty `data:` and no NaN, because each of them breaks a client.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar, Union, assert_never, get_args

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core import events
from vinery_serving.core.errors import InvalidKey, LimitReached, MethodNotAllowed, ServingError
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


@dataclass(slots=True)
class OpenItem:
    """The item of a response, or the block of a message, that a stream is writing. `begun_by` is
    the first event; `delta_open` holds the bytes of a delta's frame before the text."""

    begun_by: events.TextDelta | events.ReasoningDelta | events.ToolCallStarted
    delta_open: bytes


_TEXTS = events.TextDelta | events.ReasoningDelta
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
            case (
                events.Progress()
                | events.Arrived()
                | events.PromptScored()
                | events.FirstToken()
                | events.TokensGenerated()
            ):
                return b""
            case events.Compacted():
                return b""
            case events.Completed():
                return self._complete(event)
            case events.Failed():
                return self._fail(event.error)
            case _:
                assert_never(event)

    def _open_call(self, index: int) -> ItemT:
        match self._open:
            case OpenItem(begun_by=events.ToolCallStarted(index=at)) as item if at == index:
                return item
        raise ValueError("a delta of a tool call that is not the open item")

    @abstractmethod
    def _begin(
        self, event: events.TextDelta | events.ReasoningDelta | events.ToolCallStarted
    ) -> bytes:
        """Open the item that begins with `event`, and return the frames before its first delta."""

    @abstractmethod
    def _delta(
        self, item: ItemT, event: events.TextDelta | events.ReasoningDelta | events.ToolCallDelta
    ) -> bytes: ...

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
_DELTAS = events.TextDelta | events.ReasoningDelta | events.ToolCallDelta
_PADDING_CLOSE = b'"}\n\n'


class Obfuscated:
    """Pads each delta of another encoder: the sizes of encrypted packets would show words."""

    def __init__(self, encoder: Encoder, identity: AnswerIdentity) -> None:
        self._encoder = encoder
        # Only the length of the padding matters.
        self._padding = (identity.token * _BUCKET_BYTES)[:_BUCKET_BYTES].encode()

    def feed(self, event: events.Event) -> bytes:
        frames = self._encoder.feed(event)
        if not frames or not isinstance(event, _DELTAS):
            return frames
        return padded(frames, self._padding)


def padded(frames: bytes, padding: bytes = b"0" * _BUCKET_BYTES) -> bytes:
    """Pad the last of these frames, which is a delta. The frames before open the item."""
    start = frames.rfind(b"\ndata: ") + 1
    rest = frames.removesuffix(b"}\n\n") + b',"obfuscation":"'
    num_missing = -(len(rest) - start + len(_PADDING_CLOSE)) % _BUCKET_BYTES
    return rest + padding[:num_missing] + _PADDING_CLOSE
