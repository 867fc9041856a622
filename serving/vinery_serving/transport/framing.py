"""Length-prefixed frames over a byte stream: four bytes big endian, then one document."""

import struct
from typing import Final

import msgspec

from vinery_serving.transport.messages import MAX_FRAME_BYTES

_LENGTH: Final = struct.Struct(">I")
_encoder: Final = msgspec.msgpack.Encoder()


class InvalidFrame(Exception):
    """The peer does not speak this protocol. The connection must be closed."""


def pack(message: msgspec.Struct) -> bytes:
    """Return one frame, ready for the socket."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a byte stream into frames, wherever the stream was split."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, received: bytes) -> list[bytes]:
        """Return the complete frames' bodies. Raises InvalidFrame for one of too many bytes."""
        self._buffer += received
        buffer, start, frames = self._buffer, 0, []
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MAX_FRAME_BYTES:
                raise InvalidFrame(f"a frame of {length} bytes")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            frames.append(bytes(buffer[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        return frames
