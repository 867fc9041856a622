"""A tiny streaming server on loopback, scripted: what the client of the benchmark is tried on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class StubServer:
    """Answers each request with `max_tokens` words, `tokens_per_chunk` in one event."""

    tokens_per_chunk: int = 1
    status: int = 200
    breaks_off: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    num_connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if head.startswith(b"GET"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.bodies.append(body)
        if self.status != 200:
            error = b'{"error": {"message": "no"}}'
            writer.write(
                f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(error)}\r\n\r\n".encode() + error
            )
            return
        await self._stream(body, writer)

    async def _stream(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        words = [f" {number}" for number in range(body["max_tokens"])]
        writer.write(_event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
        for start in range(0, len(words), self.tokens_per_chunk):
            text = "".join(words[start : start + self.tokens_per_chunk])
            writer.write(_event({"choices": [{"delta": {"content": text}}]}))
            await writer.drain()
            await asyncio.sleep(0)
        if self.breaks_off:
            writer.close()
            return
        usage = {"prompt_tokens": 7, "completion_tokens": len(words)}
        writer.write(_event({"choices": [], "usage": usage}))
        writer.write(_http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _event(content: dict[str, Any]) -> bytes:
    return _http_chunk(f"data: {json.dumps(content)}\n\n".encode())


def _http_chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


@contextmanager
def running(stub: StubServer) -> Iterator[StubServer]:
    """The stub in a thread with a loop of its own."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(stub.serve, "127.0.0.1", 0))
    stub.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield stub
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
