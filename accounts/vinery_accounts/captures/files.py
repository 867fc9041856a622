"""Leaves the files of requests out of captures: pictures are large, and cannot be redacted."""

from collections.abc import Iterator
from heapq import merge
from typing import Final

# Before the base64 of a data URL, and the name of a field that may have base64 alone.
_DATA_URL: Final = b";base64,"
_FIELD: Final = b'"file_data"'
# Shorter texts stay: they may be no files.
_LEAST_CHARS: Final = 512


def without_files(body: bytes, max_bytes: int) -> tuple[bytes, int]:
    """Return the start of a JSON body in which the base64 of each file is replaced by its number of
    characters, at most `max_bytes` of it, and the number of bytes of the whole."""
    parts: list[bytes] = []
    at = num_bytes = 0
    for start in merge(_after(body, _DATA_URL), _starts_of_fields(body)):
        end = body.find(b'"', start)
        end = len(body) if end < 0 else end
        if start < at or end - start < _LEAST_CHARS:
            continue
        left_out = b"[%d characters of a file]" % (end - start)
        if num_bytes < max_bytes:
            parts += body[at : min(start, at + max_bytes)], left_out
        num_bytes += start - at + len(left_out)
        at = end
    parts.append(body[at : at + max_bytes] if num_bytes < max_bytes else b"")
    return b"".join(parts)[:max_bytes], num_bytes + len(body) - at


def _after(body: bytes, mark: bytes) -> Iterator[int]:
    """Yield the index after each mark. A search costs about a second for 2 GB."""
    at = 0
    while (at := body.find(mark, at)) >= 0:
        at += len(mark)
        yield at


def _starts_of_fields(body: bytes) -> Iterator[int]:
    for after in _after(body, _FIELD):
        if quote := body.find(b'"', after) + 1:
            yield quote
