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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, cast
from urllib.parse import urlsplit

import uvloop
from httptools import HttpResponseParser

from benchmarks.machine import WebCpu
from benchmarks.measures import Run, Stream
from benchmarks.prompts import Prompt

_RUN_TIMEOUT_S = 1800.0
_DATA = b"data:"
# The reads of one response, and when each came.
Arrivals = Sequence[tuple[float, bytes]]


class BadResponse(Exception):
    """The answer cannot be measured. The message has the reason."""


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

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"}

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


class Connection(asyncio.Protocol):
    """Sends one request at a time and writes down the reads of the response."""

    started_s: float
    arrivals: list[tuple[float, bytes]]
    _parser: HttpResponseParser
    _ended: asyncio.Future[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> asyncio.Future[None]:
        """Done when the whole response is there. Fails with BadResponse when it breaks off."""
        self.arrivals, self._parser = [], HttpResponseParser(self)
        self._ended = asyncio.get_running_loop().create_future()
        self.started_s = time.perf_counter()
        self._transport.write(request)
        return self._ended

    @property
    def is_open(self) -> bool:
        """Servers close connections that are idle for some seconds."""
        return not self._transport.is_closing()

    @property
    def status(self) -> int:
        """Of the last response."""
        return self._parser.get_status_code()

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self.arrivals.append((time.perf_counter(), data))
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if not self._ended.done():
            self._ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(BadResponse(f"the connection was closed: {exc}"))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A full collection takes longer than a gap between tokens."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass
class _Events:
    """The events of a streamed response, and when each was complete. Read after the measurement."""

    now_s: float = 0.0
    found: list[tuple[float, bytes]] = field(default_factory=list)
    _pending: bytes = b""

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        *complete, self._pending = (self._pending + body).split(b"\n\n")
        self.found += [(self.now_s, each) for each in complete]


def read_stream(started_s: float, arrivals: Arrivals) -> Stream:
    """The answer in a response. Raises BadResponse for an error or a stream without usage."""
    events = _Events()
    parser = HttpResponseParser(events)
    for events.now_s, read in arrivals:
        parser.feed_data(read)
    if parser.get_status_code() != 200:
        received = b"".join(read for _, read in arrivals)
        raise BadResponse(received[:2000].decode("utf-8", "replace"))

    times_s: list[float] = []
    texts: list[str] = []
    usage: dict[str, int] | None = None
    for at_s, event in events.found:
        lines = [each for each in event.splitlines() if each.startswith(_DATA)]
        data = b"".join(each.removeprefix(_DATA).strip() for each in lines)
        if data in (b"", b"[DONE]"):
            continue
        body = json.loads(data)
        if "error" in body:
            raise BadResponse(data.decode())
        usage = body.get("usage") or usage
        if text := _text(body):
            texts.append(text)
            times_s.append(at_s)
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
