"""A lean HTTP client: many streamed answers at once, from one thread.

The client shares the cores with the measured server. So while answers arrive it only writes down
the time and the bytes of each read; the bytes are parsed after the end of the last answer. Each
stream has a keep-alive connection, opened and used once before the clock starts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Self, cast
from urllib.parse import urlsplit

import uvloop

from benchmarks.machine import WebCpu
from benchmarks.measures import Run, Stream
from benchmarks.prompts import Prompt

_RUN_TIMEOUT_S = 1800.0
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_HEAD_END = b"\r\n\r\n"
_EVENT_END = b"\n\n"
_DATA = b"data:"
_DONE = b"[DONE]"


@dataclass(frozen=True)
class Endpoint:
    """Where a server is. `base_url` is its root, without `/v1`."""

    base_url: str
    api_key: str

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.base_url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{self.base_url} is not like http://HOST:PORT")
        return parts.hostname, parts.port or 80

    def get(self, path: str) -> bytes:
        return self._head("GET", path) + b"\r\n"

    def post(self, path: str, content: dict[str, Any]) -> bytes:
        body = json.dumps(content).encode()
        head = self._head("POST", path) + b"content-type: application/json\r\n"
        return head + f"content-length: {len(body)}\r\n\r\n".encode() + body

    def _head(self, method: str, path: str) -> bytes:
        host, port = self.address
        return (
            f"{method} {path} HTTP/1.1\r\nhost: {host}:{port}\r\n"
            f"authorization: Bearer {self.api_key}\r\n"
        ).encode()


def streamed(model: str, max_tokens: int, **more: Any) -> dict[str, Any]:
    """Return a request for a greedy stream."""
    more |= {"stream": True, "stream_options": {"include_usage": True}}
    return {"model": model, "max_tokens": max_tokens, "temperature": 0, **more}


class ServedModel:
    """A model behind HTTP, driven as the bare engine is. Use it as a context manager."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self._endpoint = endpoint
        self._name = name
        self._web_cpu = WebCpu(endpoint.base_url)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.close()

    def run(self, prompts: list[Prompt], max_tokens: int) -> Run:
        """Answer all prompts at once. Raises BadResponse, OSError or TimeoutError."""
        requests = [self._request(prompt, max_tokens) for prompt in prompts]
        return self._runner.run(self._run(requests))

    def _request(self, prompt: Prompt, max_tokens: int) -> bytes:
        content = streamed(self._name, max_tokens, messages=prompt.messages)
        return self._endpoint.post("/v1/chat/completions", content)

    async def _run(self, requests: list[bytes]) -> Run:
        async with asyncio.timeout(_RUN_TIMEOUT_S):
            connections = [await connect(self._endpoint) for _ in requests]
            with _no_garbage_collection():
                web_s, client_s = self._web_cpu.used_s(), time.process_time()
                answers = [
                    connection.ask(request)
                    for connection, request in zip(connections, requests, strict=True)
                ]
                await asyncio.gather(*answers)
                client_s = time.process_time() - client_s
                web_end_s = self._web_cpu.used_s()
        for connection in connections:
            connection.close()
        return Run(
            streams=tuple(read_stream(c.started_s, c.arrivals) for c in connections),
            web_cpu_s=None if web_s is None or web_end_s is None else web_end_s - web_s,
            client_cpu_s=client_s,
        )


async def connect(endpoint: Endpoint) -> Connection:
    """A connection that the server has accepted and answered on."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, *endpoint.address)
    await connection.ask(endpoint.get("/livez"))
    return connection


@dataclass
class Connection(asyncio.Protocol):
    """Sends one request at a time and writes down the reads of the response."""

    started_s: float = 0.0
    _times_s: list[float] = field(default_factory=list)
    _reads: list[bytes] = field(default_factory=list)
    _head: Head | None = None
    _transport: asyncio.Transport | None = None
    _ended: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> asyncio.Future[None]:
        """Done when the whole response is there. Fails with BadResponse when it breaks off."""
        assert self._transport is not None
        self._times_s, self._reads, self._head = [], [], None
        self._ended = asyncio.get_running_loop().create_future()
        self.started_s = time.perf_counter()
        self._transport.write(request)
        return self._ended

    @property
    def is_open(self) -> bool:
        """Servers close connections that are idle for some seconds."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def arrivals(self) -> Arrivals:
        return Arrivals(tuple(self._times_s), tuple(self._reads))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._times_s.append(time.perf_counter())
        self._reads.append(data)
        if self._is_complete(data) and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(BadResponse(f"the connection was closed: {exc}"))

    def _is_complete(self, data: bytes) -> bool:
        if self._head is None:
            self._head = Head.of(b"".join(self._reads))
        if self._head is None:
            return False
        if self._head.is_chunked:
            tail = data if len(data) >= len(_LAST_CHUNK) else b"".join(self._reads[-8:])
            return tail.endswith(_LAST_CHUNK)
        size = sum(map(len, self._reads)) - self._head.size
        return size >= (self._head.content_length or 0)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A full collection takes longer than a gap between tokens."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# -- From the bytes of one streamed HTTP/1.1 response, and when they came, to a `Stream`. Slow on
# -- purpose: it runs after the measurement. An event arrives with the last byte of the HTTP chunk
# -- that completes it.


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

    def arrived_at_s(self, offset: int) -> float:
        """When the byte before this offset was there."""
        return self.times_s[bisect_left(self._ends, offset)]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self.reads)))


def read_stream(started_s: float, arrivals: Arrivals) -> Stream:
    """The answer in a response. Raises BadResponse for an error or a stream without usage."""
    received = b"".join(arrivals.reads)
    head = Head.of(received)
    if head is None or head.status != 200 or not head.is_chunked:
        raise BadResponse(received[:2000].decode("utf-8", "replace"))

    times_s: list[float] = []
    texts: list[str] = []
    usage: dict[str, int] | None = None
    for data, end in _events(received, head.size):
        body = json.loads(data)
        if "error" in body:
            raise BadResponse(data.decode())
        usage = body.get("usage") or usage
        if text := _text(body):
            texts.append(text)
            times_s.append(arrivals.arrived_at_s(end))
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


def _events(received: bytes, start: int) -> Iterator[tuple[bytes, int]]:
    """All events with JSON in them, and where in the response each was complete; comments and the
    end mark are passed over."""
    pending = b""
    for chunk, end in _http_chunks(received, start):
        *complete, pending = (pending + chunk).split(_EVENT_END)
        for block in complete:
            data = _data(block.split(b"\n"))
            if data and data != _DONE:
                yield data, end


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
