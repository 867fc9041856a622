"""Finds the engines that have outlived their node, by socket, and keeps them running.

The kernel knows which process listens on a socket. A file with a process id could name a dead
process, or a new process with the same id. A descriptor of the process (`pidfd`) then names this
process alone. Only Linux has both; elsewhere engines end with their node.
"""

import asyncio
import contextlib
import os
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Final

import msgspec

from vinery_serving.processes.child import RunningProcess
from vinery_serving.transport.messages import Hello, Keep
from vinery_serving.transport.sockets import (
    EngineAddress,
    FrameReader,
    InvalidFrame,
    engine_sockets,
    pack,
)

# Linux's `struct ucred`: process, user, group.
_CREDENTIALS: Final = struct.Struct("iII")
_READ_BYTES: Final = 1 << 16


class AdoptedEngine(RunningProcess):
    """A running engine that another node has started. This node keeps the engine running.

    Needs a running event loop.
    """

    def __init__(self, pid: int, pidfd: int, connection: socket.socket) -> None:
        super().__init__(pid, "engine")
        self._pidfd = pidfd
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(pidfd, self._on_end)

    @property
    def has_ended(self) -> bool:
        return self._ended.done()

    async def wait(self) -> None:
        await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        """None goes to a process that has got its id since."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    async def hello(self) -> Hello | None:
        """Return the engine's first message; None if the engine sends none, or ends."""
        frames = FrameReader()
        try:
            while received := await self._loop.sock_recv(self._connection, _READ_BYTES):
                for frame in frames.feed(received):
                    return msgspec.msgpack.decode(frame, type=Hello)
        except (OSError, InvalidFrame, msgspec.MsgspecError):
            pass
        return None

    def close(self) -> None:
        if not self._is_closed:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._connection.close()
        super().close()

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self._ended.done():
            self._ended.set_result(None)


def find(run_dir: Path) -> dict[EngineAddress, AdoptedEngine]:
    if sys.platform != "linux":
        return {}
    try:
        sockets = engine_sockets(run_dir)
    except OSError:
        return {}
    found = {address: _keep(path) for address, path in sockets.items()}
    for address in [each for each, engine in found.items() if engine is None]:
        with contextlib.suppress(OSError):
            sockets[address].unlink()
    return {address: engine for address, engine in found.items() if engine is not None}


class KeptEngines:
    """Keeps the engines of a folder running for as long as this process lives, without adopting
    them: the supervisor, while there is no node."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._connections: dict[Path, socket.socket] = {}

    def look(self) -> None:
        """Keep the engines that serve since the last look, and forget those that have ended."""
        for path in [each for each, kept in self._connections.items() if _is_closed(kept)]:
            self._connections.pop(path).close()  # a new engine may listen there
        with contextlib.suppress(OSError):
            for path in engine_sockets(self._run_dir).values():
                if path not in self._connections and (connected := _connect(path)) is not None:
                    self._connections[path], _ = connected


def _keep(path: Path) -> AdoptedEngine | None:
    if (connected := _connect(path)) is None:
        return None
    connection, pid = connected
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        connection.close()
        return None
    if _is_closed(connection):  # it has ended meanwhile, and `pidfd` may name another process
        os.close(pidfd)
        connection.close()
        return None
    return AdoptedEngine(pid, pidfd, connection)


def _connect(path: Path) -> tuple[socket.socket, int] | None:
    """Keep the engine of this socket. Returns the connection and the process id; None: there is no
    engine of this user."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        connection.connect(str(path))
        connection.send(pack(Keep()))
        pid, uid, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid != os.getuid() or pid in (0, os.getpid()):
            raise PermissionError
    except OSError:
        connection.close()
        return None
    return connection, pid


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other end is closed. What it sent before may still be unread."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))
