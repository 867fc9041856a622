"""The interface of a protocol: a parsed request, and the two encodings of its answer.

`http` calls `parse` and runs `exchange.request`. It then writes the frames of
`exchange.encoder(identity)`, or one `exchange.body(identity, result)`. Both encodings have the
same ids, because the ids derive from the identity.
"""

from typing import ClassVar, Protocol

from vinery_serving.core.events import Event, ReasoningDelta, TextDelta, ToolCallDelta
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
