"""The interface of a protocol: a parsed request, and the two encodings of its answer.

`http` calls `parse` and runs `exchange.request`. It then writes the frames of
`exchange.encoder(identity)`, or one `exchange.body(identity, result)`. Both encodings have the
same ids, because the ids derive from the identity.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar, assert_never

from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import (
    Arrived,
    Completed,
    Event,
    Failed,
    Finished,
    FirstToken,
    Progress,
    PromptScored,
    ReasoningDelta,
    Started,
    TextDelta,
    TokensGenerated,
    ToolCallDelta,
    ToolCallStarted,
)
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import GenerationRequest
from vinery_serving.core.result import Result


class Encoder(Protocol):
    """Encodes events as server-sent events. Holds the state of one stream."""

    def feed(self, event: Event) -> bytes:
        """Return the frames of `event` with their blank lines, or b"" for none.

        OpenAI's streams end with `data: [DONE]`, in the frames of `Completed` and `Failed`. No
        event may follow.
        """


class Exchange(Protocol):
    """One parsed request, with the values of it that the answer repeats."""

    # What a stream gets while there is nothing else to send.
    keep_alive: ClassVar[bytes]

    @property
    def request(self) -> GenerationRequest:
        """The request, independent of the protocol."""

    def encoder(self, identity: AnswerIdentity) -> Encoder:
        """Return a new encoder for a streamed answer."""

    def body(self, identity: AnswerIdentity, result: Result) -> bytes:
        """Return the JSON body of a whole answer."""


@dataclass(slots=True)
class OpenItem:
    """The item of a response, or the block of a message, that a stream is writing. `begun_by` is
    its first event; `delta_open` holds the bytes of a delta's frame before its text."""

    begun_by: TextDelta | ReasoningDelta | ToolCallStarted
    delta_open: bytes


_TEXTS = TextDelta | ReasoningDelta
ItemT = TypeVar("ItemT", bound=OpenItem)


class ItemEncoder(ABC, Generic[ItemT]):
    """Encodes the events of one stream, whose answer is a row of items: the start of an item
    closes the one before. The choices must come one after the other."""

    def __init__(self) -> None:
        self._open: ItemT | None = None

    def feed(self, event: Event) -> bytes:
        item = self._open
        # First what comes for every token.
        if isinstance(event, _TEXTS) and item is not None and type(item.begun_by) is type(event):
            return self._delta(item, event)
        return self._encode(event)

    def _encode(self, event: Event) -> bytes:
        match event:
            case TextDelta() | ReasoningDelta():
                return self._close() + self._begin(event) + self.feed(event)
            case ToolCallDelta():
                return self._delta(self._open_call(event.index), event)
            case ToolCallStarted():
                return self._close() + self._begin(event)
            case Started():
                return self._start(event)
            case Finished():
                return self._finish(event)
            case Progress() | Arrived() | PromptScored() | FirstToken() | TokensGenerated():
                return b""
            case Completed():
                return self._complete(event)
            case Failed():
                return self._fail(event.error)
            case _:
                assert_never(event)

    def _open_call(self, index: int) -> ItemT:
        match self._open:
            case OpenItem(begun_by=ToolCallStarted(index=at)) as item if at == index:
                return item
        raise ValueError("a delta of a tool call that is not the open item")

    @abstractmethod
    def _begin(self, event: TextDelta | ReasoningDelta | ToolCallStarted) -> bytes:
        """Open the item that begins with `event`, and return the frames before its first delta."""

    @abstractmethod
    def _delta(self, item: ItemT, event: TextDelta | ReasoningDelta | ToolCallDelta) -> bytes: ...

    @abstractmethod
    def _close(self) -> bytes:
        """Return the end of the open item; b"" if none is open."""

    @abstractmethod
    def _start(self, event: Started) -> bytes: ...

    @abstractmethod
    def _finish(self, event: Finished) -> bytes: ...

    @abstractmethod
    def _complete(self, event: Completed) -> bytes: ...

    @abstractmethod
    def _fail(self, error: ServingError) -> bytes: ...


# `stream_options.include_obfuscation`: the size of a delta's frame is a multiple of this number
# of bytes. Few tokens are longer, so most deltas of a stream have the same size.
_BUCKET_BYTES = 32
_DELTAS = TextDelta | ReasoningDelta | ToolCallDelta
_PADDING_CLOSE = b'"}\n\n'


class Obfuscated:
    """Pads each delta of another encoder. An observer of encrypted packets can guess words
    from the sizes of deltas."""

    def __init__(self, encoder: Encoder, identity: AnswerIdentity) -> None:
        self._encoder = encoder
        # Only the length of the padding matters.
        self._padding = (identity.token * _BUCKET_BYTES)[:_BUCKET_BYTES].encode()

    def feed(self, event: Event) -> bytes:
        frames = self._encoder.feed(event)
        if not frames or not isinstance(event, _DELTAS):
            return frames
        # The delta is the last frame. Frames before it open its item.
        start = frames.rfind(b"\ndata: ") + 1
        rest = frames.removesuffix(b"}\n\n") + b',"obfuscation":"'
        num_missing = -(len(rest) - start + len(_PADDING_CLOSE)) % _BUCKET_BYTES
        return rest + self._padding[:num_missing] + _PADDING_CLOSE
