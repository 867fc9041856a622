"""The gateway's end of the socket: one connection per engine, many generations on it.

`EngineClient` keeps the connection up for as long as it is open: it connects again within
moments of an engine's start. A generation belongs to one connection; when that breaks,
every `Run` on it learns so by `EngineDisconnected`, and whoever owns the run decides what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, assert_never, cast

import msgspec

from serving.transport.framing import FrameReader, InvalidFrame, pack
from serving.transport.messages import (
    PROTOCOL_VERSION,
    Accepted,
    Cancel,
    EngineStats,
    FromEngine,
    Grant,
    Hello,
    Ping,
    Pong,
    Rejected,
    StepOutputs,
    Submit,
)
from serving.transport.run import EngineDisconnected, Run, Said

# How soon a vanished engine is looked for again. It bounds how long a waiting request
# notices nothing after the engine is back; a failed connect to a Unix socket costs 50 us.
_RECONNECT_S: Final = 0.05


class _Link(asyncio.Protocol):
    """One live connection."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._frames = FrameReader()
        self._decode = msgspec.msgpack.Decoder(FromEngine).decode
        self._transport: asyncio.Transport | None = None
        self._runs: dict[int, Run] = {}
        self._pings: dict[int, asyncio.Future[EngineStats]] = {}
        self.hello: asyncio.Future[Hello] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        # First of all: a run that is told of the loss may submit again at once.
        self._on_lost()
        runs, self._runs = set(self._runs.values()), {}
        for run in runs:
            run.lose()
        for ping in self._pings.values():
            _fail(ping, EngineDisconnected())
        _fail(self.hello, EngineDisconnected())
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._take(self._decode(frame))
        except (InvalidFrame, msgspec.MsgspecError):
            self.close()

    def send(self, message: msgspec.Struct) -> None:
        if self._transport is None or self._transport.is_closing():
            raise EngineDisconnected
        self._transport.write(pack(message))

    def open_run(self, submits: Sequence[Submit]) -> Run:
        ids = [id_ for submit in submits for id_ in submit.ids]
        run = Run(ids, self.forget, self.grant)
        for id_ in ids:
            self._runs[id_] = run
        for submit in submits:
            self.send(submit)
        return run

    def forget(self, id_: int, num_used: int) -> None:
        self._runs.pop(id_, None)
        with contextlib.suppress(EngineDisconnected):
            self.send(Cancel(id_, num_used))

    def grant(self, grant: Grant) -> None:
        with contextlib.suppress(EngineDisconnected):
            self.send(grant)

    async def ping(self, nonce: int) -> EngineStats:
        answer: asyncio.Future[EngineStats] = asyncio.get_running_loop().create_future()
        self._pings[nonce] = answer
        try:
            self.send(Ping(nonce))
            return await answer
        finally:
            self._pings.pop(nonce, None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _take(self, message: FromEngine) -> None:
        match message:
            case StepOutputs(outputs=outputs):
                for output in outputs:
                    self._deliver(output, is_end=output.finish is not None)
            case Accepted():
                self._deliver(message, is_end=False)
            case Rejected():
                self._deliver(message, is_end=True)
            case Pong(nonce=nonce, stats=stats):
                ping = self._pings.get(nonce)
                if ping is not None and not ping.done():
                    ping.set_result(stats)
            case Hello():
                self._greet(message)
            case _:
                assert_never(message)

    def _deliver(self, said: Said, *, is_end: bool) -> None:
        run = self._runs.pop(said.id, None) if is_end else self._runs.get(said.id)
        if run is None:
            return  # cancelled meanwhile
        if is_end:
            run.end(said)
        else:
            run.put(said)

    def _greet(self, hello: Hello) -> None:
        if hello.protocol_version != PROTOCOL_VERSION:
            self.close()
        elif not self.hello.done():
            self.hello.set_result(hello)


def _fail(future: asyncio.Future[EngineStats] | asyncio.Future[Hello], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # read here, so that nobody is warned of a failure unread


class EngineClient:
    """Everything a gateway needs of one engine. Call `open` once, `close` at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ids = itertools.count(1)
        self._link: _Link | None = None
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.hello: Hello | None = None

    @property
    def is_connected(self) -> bool:
        """Whether an engine is there now."""
        return self._connected.is_set()

    def open(self) -> None:
        """Begin to keep a connection up."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name=f"engine-link {self.path.name}")

    async def close(self) -> None:
        """Drop the connection; runs on it are lost."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    async def wait_connected(self, timeout_s: float) -> Hello:
        """The engine's greeting. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._connected.wait()
        assert self.hello is not None
        return self.hello

    def new_id(self) -> int:
        """An id that no other generation of this client has."""
        return next(self._ids)

    def submit(self, submits: Sequence[Submit]) -> Run:
        """Start some generations as one run. Raises `EngineDisconnected` when none is there."""
        if self._link is None:
            raise EngineDisconnected
        return self._link.open_run(submits)

    async def ping(self, timeout_s: float) -> EngineStats:
        """What the engine is doing. Raises `EngineDisconnected`, or TimeoutError when it hangs."""
        if self._link is None:
            raise EngineDisconnected
        async with asyncio.timeout(timeout_s):
            return await self._link.ping(self.new_id())

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(OSError, EngineDisconnected):
                path = str(self.path)
                _, link = await loop.create_unix_connection(lambda: _Link(self._lose), path)
                await self._use(link)
            await asyncio.sleep(_RECONNECT_S)

    async def _use(self, link: _Link) -> None:
        try:
            self.hello = await link.hello
            self._link = link
            self._connected.set()
            await link.closed
        finally:
            self._lose()
            link.close()

    def _lose(self) -> None:
        self._link = None
        self._connected.clear()
