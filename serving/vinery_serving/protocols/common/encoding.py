"""JSON, server-sent events and errors as bytes, in a form that every tested client reads.

Events have no `id:` lines, no empty `data:` and no NaN, because each of them breaks a client.
"""

import json
from collections.abc import Mapping

import msgspec

from vinery_serving.core.errors import InvalidKey, LimitReached, MethodNotAllowed, ServingError

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


def json_bytes(value: object) -> bytes:
    """Return `value` as compact JSON without any line separator. NaN and infinities become
    null."""
    try:
        encoded = _encode(value)
    except OverflowError:
        # Only the standard library writes integers of more than 64 bits.
        encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return _on_one_line(encoded)


def json_members(members: Mapping[str, object]) -> bytes:
    """Return the members of a JSON object without its braces."""
    return json_bytes(members)[1:-1]


def json_text(text: str) -> bytes:
    """Return `text` as a JSON string with its quotes. Runs for every token."""
    encoded = _encode(text)
    return encoded if text.isascii() else _on_one_line(encoded)


def frame(payload: bytes) -> bytes:
    """Return an event without a name."""
    return b"data: %b\n\n" % payload


def named_frame(name: str, payload: bytes) -> bytes:
    """Return an event with a name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def error_object(error: ServingError) -> dict[str, dict[str, str | None]]:
    """Return OpenAI's `{"error": {...}}`, for a body or for an event of a stream."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


def error_body(error: ServingError) -> bytes:
    """Return the JSON body of an error response."""
    return json_bytes(error_object(error))


def error_headers(error: ServingError) -> dict[str, str]:
    """Return the headers of an error response, such as those about retries."""
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
