"""Finds the engines that have outlived their node, by socket, and keeps them running.

The kernel knows which process listens on a socket. A file with a process id could name a dead
process, or a new process with the same id. A descriptor of the process (`pidfd`) then names this
process alone. Only Linux has both; elsewhere engines end with their node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from vinery_serving.processes.child import RunningProcess
from vinery_serving.transport.handshake import Handshake, Stranger, check_user, peer_of, socket_key
from vinery_serving.transport.sockets import (
    EngineAddress,
    FrameReader,
    InvalidFrame,
    engine_sockets,
    pack,
)

# 2 MB of the supervisor, which imports messages only once there is an engine.
if TYPE_CHECKING:
    from vinery_serving.transport.messages import Hello

_READ_BYTES: Final = 1 << 16


class _Connected(NamedTuple):
    connection: socket.socket
    handshake: Handshake
    pid: int


class AdoptedEngine(RunningProcess):
    """A running engine that another node has started. This node keeps the engine running.

    Needs a running event loop.
    """

    def __init__(
        self, pid: int, pidfd: int, connection: socket.socket, handshake: Handshake
    ) -> None:
        super().__init__(pid, "engine")
        self._pidfd = pidfd
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(pidfd, self._on_end)
        self._hello = self._loop.create_task(self._keep(handshake), name="engine-adoption")

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
        return await asyncio.shield(self._hello)

    def close(self) -> None:
        if not self._is_closed:
            self._hello.cancel()
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._connection.close()
        super().close()

    async def _keep(self, handshake: Handshake) -> Hello | None:
        import msgspec

        from vinery_serving.transport.messages import Hello

        frames = FrameReader()
        try:
            while received := await self._loop.sock_recv(self._connection, _READ_BYTES):
                for frame in frames.feed(_answer(self._connection, handshake, received)):
                    return msgspec.msgpack.decode(frame, type=Hello)
        except (OSError, InvalidFrame, Stranger, msgspec.MsgspecError):
            pass
        return None

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self._ended.done():
            self._ended.set_result(None)


def find(run_dir: Path, secret: bytes) -> dict[EngineAddress, AdoptedEngine]:
    if sys.platform != "linux":
        return {}
    try:
        sockets = engine_sockets(run_dir)
    except OSError:
        return {}
    found = {address: _adopt(path, secret) for address, path in sockets.items()}
    for address in [each for each, engine in found.items() if engine is None]:
        with contextlib.suppress(OSError):
            sockets[address].unlink()
    return {address: engine for address, engine in found.items() if engine is not None}


class KeptEngines:
    """Keeps the engines of a folder running for as long as this process lives, without adopting
    them: the supervisor, while there is no node."""

    def __init__(self, run_dir: Path, secret: Callable[[], bytes]) -> None:
        """`secret` is that of the home, which the first start makes."""
        self._run_dir = run_dir
        self._secret = secret
        self._kept: dict[Path, _Connected] = {}

    def look(self) -> None:
        """Get to know the engines that serve since the last look, keep those of the look before,
        and forget those that have ended."""
        for path, (connection, handshake, _) in list(self._kept.items()):
            if _is_closed(connection) or not _has_answered(connection, handshake):
                self._kept.pop(path)
                connection.close()
        with contextlib.suppress(OSError):
            for path in engine_sockets(self._run_dir).values():
                if path in self._kept:
                    continue
                if (connected := _connect(path, self._secret())) is not None:
                    self._kept[path] = connected


def _has_answered(connection: socket.socket, handshake: Handshake) -> bool:
    """Take what the engine has sent to prove itself; False: it is another process."""
    try:
        if not handshake.is_done:
            _answer(connection, handshake, connection.recv(_READ_BYTES))
    except BlockingIOError:
        pass
    except (OSError, Stranger):
        return False
    return True


def _answer(connection: socket.socket, handshake: Handshake, received: bytes) -> bytes:
    """Ask the engine to stay, as soon as both ends have proved themselves. Returns what the engine
    has sent after its proof. Raises `Stranger` or OSError."""
    if handshake.is_done:
        return received
    reply, rest = handshake.feed(received)
    connection.send(reply)
    if handshake.is_done:
        from vinery_serving.transport.messages import Keep

        connection.send(pack(Keep()))
    return rest


def _adopt(path: Path, secret: bytes) -> AdoptedEngine | None:
    if (connected := _connect(path, secret)) is None:
        return None
    connection, handshake, pid = connected
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        connection.close()
        return None
    if _is_closed(connection):  # it has ended meanwhile, and `pidfd` may name another process
        os.close(pidfd)
        connection.close()
        return None
    return AdoptedEngine(pid, pidfd, connection, handshake)


def _connect(path: Path, secret: bytes) -> _Connected | None:
    """None: there is no engine of this user."""
    handshake = Handshake(socket_key(secret, path), listens=False)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        connection.connect(str(path))
        check_user(connection)
        pid = peer_of(connection).pid
        if pid in (0, os.getpid()):
            raise PermissionError
        connection.send(handshake.opening)
    except (OSError, Stranger):
        connection.close()
        return None
    return _Connected(connection, handshake, pid)


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other end is closed. What it sent before may still be unread."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))
