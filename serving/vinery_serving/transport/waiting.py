"""Reports the requests that wait for a model from gateways to the node, which wakes the model.

A gateway connects to the node's socket while requests wait, and sends all of them again when they
have changed. The report ends with the connection, so a killed process leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from vinery_serving.transport.handshake import Stranger, shake_hands
from vinery_serving.transport.sockets import FrameReader, InvalidFrame, node_socket, pack

_RECONNECT_S: Final = 0.05
_INTERVAL_S: Final = 0.05  # how often a gateway looks for changes
_READ_BYTES: Final = 1 << 16


class Wait(NamedTuple):
    num_requests: int
    since_s: float  # Unix time of the oldest request


class _Report(msgspec.Struct, frozen=True, array_like=True):
    """All that waits at one gateway: model id, number, and Unix time of the oldest."""

    waits: tuple[tuple[int, int, float], ...]


class WaitingRequests:
    def __init__(self, run_dir: Path, key: bytes, clock: Callable[[], float] = time.time) -> None:
        """`key` is that of the node's socket."""
        self._run_dir, self._key, self._clock = run_dir, key, clock
        self._came_at: dict[int, list[float]] = {}  # by model id, the oldest first
        self._reporting: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def of(self, model_id: int) -> Iterator[None]:
        came_at = self._clock()
        self._came_at.setdefault(model_id, []).append(came_at)
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.create_task(self._report(), name="waiting")
        try:
            yield
        finally:
            times = self._came_at[model_id]
            times.remove(came_at)
            if not times:
                del self._came_at[model_id]

    @property
    def waits(self) -> Mapping[int, Wait]:
        return {id_: Wait(len(times), times[0]) for id_, times in self._came_at.items()}

    async def close(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)

    async def _report(self) -> None:
        while self._came_at:
            with contextlib.suppress(OSError, EOFError, Stranger):
                reader, writer = await asyncio.open_unix_connection(str(node_socket(self._run_dir)))
                try:
                    await shake_hands(reader, writer, self._key, listens=False)
                    await self._send_changes(reader, writer)
                finally:
                    writer.close()
            if self._came_at:
                await asyncio.sleep(_RECONNECT_S)

    async def _send_changes(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        ended = asyncio.create_task(reader.read())
        sent: _Report | None = None
        try:
            while self._came_at and not ended.done():
                report = _Report(tuple((id_, *wait) for id_, wait in self.waits.items()))
                if report != sent:
                    writer.write(pack(report))
                    await writer.drain()
                    sent = report
                await asyncio.wait((ended,), timeout=_INTERVAL_S)
        finally:
            ended.cancel()


class WaitingServer:
    def __init__(self, run_dir: Path, key: bytes, on_change: Callable[[], None]) -> None:
        self._path = node_socket(run_dir)
        self._key, self._on_change = key, on_change
        self._reports: dict[asyncio.StreamWriter, _Report] = {}  # by connection
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OSError."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))
        self._path.chmod(0o600)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._reports:
            writer.close()

    @property
    def waits(self) -> Mapping[int, Wait]:
        found: dict[int, Wait] = {}
        for report in self._reports.values():
            for id_, num_requests, since_s in report.waits:
                known = found.get(id_, Wait(0, since_s))
                found[id_] = Wait(known.num_requests + num_requests, min(known.since_s, since_s))
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        self._reports[writer] = _Report(())
        try:
            await shake_hands(reader, writer, self._key, listens=True)
            while received := await reader.read(_READ_BYTES):
                for frame in frames.feed(received):
                    self._reports[writer] = msgspec.msgpack.decode(frame, type=_Report)
                self._on_change()
        except (OSError, EOFError, Stranger, InvalidFrame, msgspec.MsgspecError):
            pass
        finally:
            del self._reports[writer]
            self._on_change()
            writer.close()
