"""`stream_options.include_obfuscation`: deltas of equal size.

Who sees the sizes of encrypted packets can guess words from the sizes of deltas. A field of
padding brings each delta up to the next multiple of `_BUCKET_BYTES`.
"""

from __future__ import annotations

from serving.core.events import Event, ReasoningDelta, TextDelta, ToolArgsDelta, ToolInputDelta
from serving.core.ids import AnswerIdentity
from serving.protocols.base import Encoder

# Few tokens are longer than this, so that most deltas of a stream have one size.
_BUCKET_BYTES = 32
_DELTAS = TextDelta | ReasoningDelta | ToolArgsDelta | ToolInputDelta
_OPEN, _CLOSE = b',"obfuscation":"', b'"}\n\n'
_END = b"}\n\n"
_START = b"\ndata: "


class Obfuscated:
    """Another encoder, with padding in each delta that it makes."""

    def __init__(self, encoder: Encoder, head: AnswerIdentity) -> None:
        self._encoder = encoder
        # What the padding says is not secret: only its length is of use.
        self._padding = (head.token * _BUCKET_BYTES)[:_BUCKET_BYTES].encode()

    def feed(self, event: Event) -> bytes:
        frames = self._encoder.feed(event)
        is_delta = isinstance(event, _DELTAS)
        return self._padded(frames) if is_delta and frames else frames

    def _padded(self, frames: bytes) -> bytes:
        """The delta is the last frame: what opens its item comes before it."""
        start = frames.rfind(_START) + 1
        rest = frames.removesuffix(_END) + _OPEN
        num_missing = -(len(rest) - start + len(_CLOSE)) % _BUCKET_BYTES
        return rest + self._padding[:num_missing] + _CLOSE


def obfuscated(encoder: Encoder, head: AnswerIdentity, *, is_wanted: bool) -> Encoder:
    """`encoder` itself, or one that pads its deltas."""
    return Obfuscated(encoder, head) if is_wanted else encoder
