"""An engine that says what a test tells it to, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from serving.transport.framing import FrameReader, pack
from serving.transport.messages import (
    PROTOCOL_VERSION,
    Accepted,
    Cancel,
    Hello,
    StepOutputs,
    Submit,
    ToEngine,
    TokenOutput,
)

HELLO = Hello(PROTOCOL_VERSION, 1, max_context=2048, vocab_size=3072, max_running=4, max_waiting=4)


class Gateway:
    """What the script of a test can do with one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._inbox: list[ToEngine] = []

    async def hear(self) -> ToEngine:
        """The next message. Raises EOFError when the gateway is gone."""
        while not self._inbox:
            received = await self._reader.read(1 << 16)
            if not received:
                raise EOFError
            self._inbox += [
                msgspec.msgpack.decode(frame, type=ToEngine)
                for frame in self._frames.feed(received)
            ]
        return self._inbox.pop(0)

    async def hear_submit(self) -> Submit:
        while not isinstance(message := await self.hear(), Submit):
            pass
        return message

    async def hear_cancel(self) -> Cancel:
        while not isinstance(message := await self.hear(), Cancel):
            pass
        return message

    def say(self, *messages: msgspec.Struct) -> None:
        self._writer.write(b"".join(pack(message) for message in messages))

    def accept(self, submit: Submit) -> None:
        self.say(Accepted(submit.id))

    def tokens(self, submit: Submit, ids: Sequence[int], finish: str | None = None) -> None:
        self.say(StepOutputs((TokenOutput(submit.id, tuple(ids), finish, 0.001, 0),)))

    def die(self) -> None:
        self._writer.transport.abort()


Script = Callable[[Gateway], Awaitable[None]]


@asynccontextmanager
async def fake_engine(path: Path, *scripts: Script) -> AsyncIterator[None]:
    """Serves one script for each connection, the last one again and again."""
    remaining = list(scripts)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        gateway = Gateway(reader, writer)
        gateway.say(HELLO)
        try:
            await script(gateway)
        except EOFError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield
    finally:
        server.close()
