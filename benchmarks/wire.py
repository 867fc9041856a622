"""From the bytes of one streamed HTTP/1.1 response, and when they came, to a `Stream`.

Pure and slow on purpose: it runs after the measurement, not during it. An event arrives with
the last byte of the HTTP chunk that completes it.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from benchmarks.measures import Stream

_HEAD_END = b"\r\n\r\n"
_EVENT_END = b"\n\n"
_DATA = b"data:"
_DONE = b"[DONE]"


class BadResponse(Exception):
    """The answer cannot be measured. The message has the reason."""


@dataclass(frozen=True)
class Head:
    """The first lines of a response. `size` is where the body begins."""

    status: int
    size: int
    content_length: int | None
    is_chunked: bool

    @classmethod
    def of(cls, received: bytes) -> Head | None:
        """None while the head is not complete."""
        end = received.find(_HEAD_END)
        if end < 0:
            return None
        lines = received[:end].decode("latin-1").split("\r\n")
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        length = fields.get("content-length")
        return cls(
            status=int(lines[0].split()[1]),
            size=end + len(_HEAD_END),
            content_length=None if length is None else int(length),
            is_chunked="chunked" in fields.get("transfer-encoding", "").lower(),
        )


@dataclass(frozen=True)
class Arrivals:
    """All reads of one response: what came, and when."""

    times_s: tuple[float, ...]
    reads: tuple[bytes, ...]

    def time_of(self, offset: int) -> float:
        """When the byte before this offset was there."""
        return self.times_s[bisect_left(self._ends, offset)]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self.reads)))


@dataclass(frozen=True)
class Event:
    """The data of one server-sent event, and where in the response it was complete."""

    data: bytes
    end: int


def read_stream(started_s: float, arrivals: Arrivals) -> Stream:
    """The answer in a response. Raises BadResponse for an error or a stream without usage."""
    received = b"".join(arrivals.reads)
    head = Head.of(received)
    if head is None or head.status != 200 or not head.is_chunked:
        raise BadResponse(received[:2000].decode("utf-8", "replace"))

    times_s: list[float] = []
    texts: list[str] = []
    usage: dict[str, int] | None = None
    for event in _events(received, head.size):
        body = json.loads(event.data)
        if "error" in body:
            raise BadResponse(event.data.decode())
        usage = body.get("usage") or usage
        if text := _text(body):
            texts.append(text)
            times_s.append(arrivals.time_of(event.end))
    if usage is None or not times_s:
        raise BadResponse("the stream has no usage or no text")
    return Stream(
        started_s=started_s,
        chunks_s=tuple(times_s),
        num_prompt_tokens=usage["prompt_tokens"],
        num_tokens=usage["completion_tokens"],
        text="".join(texts),
    )


def _text(body: dict[str, Any]) -> str:
    """Return the text of a chunk of a chat or a completion, with its reasoning."""
    texts: list[str] = []
    for choice in body.get("choices", ()):
        delta = choice.get("delta") or choice
        texts += [delta.get(name) or "" for name in ("reasoning_content", "content", "text")]
    return "".join(texts)


def _events(received: bytes, start: int) -> Iterator[Event]:
    """All events with JSON in them; comments and the end mark are passed over."""
    pending = b""
    for chunk, end in _http_chunks(received, start):
        *complete, pending = (pending + chunk).split(_EVENT_END)
        for block in complete:
            data = _data(block.split(b"\n"))
            if data and data != _DONE:
                yield Event(data, end)


def _data(lines: Iterable[bytes]) -> bytes:
    return b"\n".join(line[len(_DATA) :].strip() for line in lines if line.startswith(_DATA))


def _http_chunks(received: bytes, start: int) -> Iterator[tuple[bytes, int]]:
    """Each chunk of a chunked body, with the offset behind its last byte."""
    while (line_end := received.find(b"\r\n", start)) >= 0:
        size = int(received[start:line_end].split(b";")[0], 16)
        begin = line_end + 2
        if size == 0 or begin + size > len(received):
            return
        yield received[begin : begin + size], begin + size
        start = begin + size + 2
