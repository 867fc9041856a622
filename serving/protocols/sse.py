"""JSON and server-sent events as bytes, in the one form that every tried client reads.

No `id:` lines, no empty `data:`, no NaN: each of them breaks some client.
"""

from __future__ import annotations

import msgspec

DONE = b"data: [DONE]\n\n"

# One newline only, and only directly before an event or another comment: a comment
# followed by a blank line is an empty event to some clients.
KEEP_ALIVE = b": keep-alive\n"

# Legal inside JSON strings, but line ends to clients that split lines as Unicode does.
_LINE_ENDS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)

_encode = msgspec.json.Encoder().encode


def json_bytes(value: object) -> bytes:
    """`value` as compact JSON on one line, by everybody's idea of a line.

    NaN and infinities become null.
    """
    return _on_one_line(_encode(value))


def json_text(text: str) -> bytes:
    """`text` as a JSON string, quotes included. The path of every token: keep it short."""
    encoded = _encode(text)
    return encoded if text.isascii() else _on_one_line(encoded)


def frame(payload: bytes) -> bytes:
    """An unnamed event."""
    return b"data: %b\n\n" % payload


def named_frame(name: str, payload: bytes) -> bytes:
    """An event with a name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def _on_one_line(encoded: bytes) -> bytes:
    for raw, escaped in _LINE_ENDS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return encoded
