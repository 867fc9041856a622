"""The relay of a host: copies bytes between web processes of other hosts and the engines of this
host, and sends files of models to hosts that lack them.

The relay is a process of its own beside the node. So no plan of the node and no wait for the
database holds up a token, and a node that restarts ends no stream. An engine knows nothing of TLS:
the relay connects to its socket as a web process of this host does. The directory of hosts is a
file, which the node writes: the relay needs no database, and works while there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final, cast

import msgspec

from vinery_accounts.base.files import write_private
from vinery_serving.cluster import folders
from vinery_serving.cluster.authority import Certificates
from vinery_serving.transport import relayed
from vinery_serving.transport.handshake import Handshake, Stranger, socket_key
from vinery_serving.transport.relayed import Attach, Fetch, Join
from vinery_serving.transport.sockets import EngineAddress, engine_socket

log = logging.getLogger(__name__)

_MAX_CONNECTIONS: Final = 1024
# Connections that have not yet said what they want.
_MAX_NEW: Final = 64
_NEW_S: Final = 10.0
_ACCEPT_PAUSE_S: Final = 0.5
_MAX_FIRST_BYTES: Final = 8192
# Files that are sent at once. To encrypt a part takes less than a millisecond, so that it holds up
# no token.
_MAX_FILES: Final = 4
_PART_BYTES: Final = 1 << 18
_LENGTH: Final = struct.Struct(">I")
_HOSTS: Final = "hosts"
Admit = Callable[[Join], Awaitable[bytes]]
_first: Final = msgspec.msgpack.Decoder(Attach | Fetch | Join)


def note_hosts(run_dir: Path, fingerprints: Collection[str]) -> None:
    """Let these hosts use the engines of this one, and no others. Raises OSError."""
    text = "".join(f"{each}\n" for each in sorted(fingerprints))
    path = run_dir / _HOSTS
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(encoding="ascii") == text:
            return
    write_private(path, text)


def noted_hosts(run_dir: Path) -> frozenset[str]:
    """The fingerprints of the last `note_hosts`. Raises OSError."""
    try:
        return frozenset((run_dir / _HOSTS).read_text(encoding="ascii").split())
    except FileNotFoundError:
        return frozenset()


class Relay:
    def __init__(
        self, run_dir: Path, secret: bytes, certificates: Certificates, admit: Admit | None = None
    ) -> None:
        """`secret`: of the sockets of this home. `admit` returns the frame for a host that joins;
        None: no host joins here."""
        self._run_dir = run_dir
        self._secret = secret
        self._certificates = certificates
        self._admit = admit
        self.remotes: set[_Remote] = set()
        self._logged: set[str] = set()  # unknown hosts
        self._new = asyncio.Semaphore(_MAX_NEW)
        self._files = asyncio.Semaphore(_MAX_FILES)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, listener: socket.socket) -> None:
        """Serve on a listening socket, until cancelled."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        beating = loop.create_task(self._beat())
        try:
            while True:
                await self._new.acquire()
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError:  # such as no descriptors left, until a connection ends
                    self._new.release()
                    await asyncio.sleep(_ACCEPT_PAUSE_S)
                    continue
                task = loop.create_task(self._take(connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            beating.cancel()
            listener.close()
            for task in self._tasks:
                task.cancel()

    async def _take(self, connection: socket.socket) -> None:
        remote = _Remote()
        try:
            async with asyncio.timeout(_NEW_S):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: remote, connection, ssl=self._certificates.context()
                )
                if len(self.remotes) >= _MAX_CONNECTIONS:
                    raise Stranger
                wish = _first.decode(await remote.first_frame)
        except (OSError, EOFError, Stranger, msgspec.MsgspecError):
            remote.cancel()
            if remote.transport is None:
                connection.close()
            return
        finally:
            self._new.release()
        self.remotes.add(remote)
        try:
            if isinstance(wish, Attach):
                await self._attach(remote, EngineAddress(wish.model_id, wish.key, wish.replica))
            elif isinstance(wish, Fetch):
                await self._send_file(remote, wish)
            elif self._admit is not None:
                answer = await self._admit(wish)
                remote.transport.write(_LENGTH.pack(len(answer)) + answer)
                remote.transport.close()
                await remote.closed
        except (OSError, Stranger):
            pass
        finally:
            remote.cancel()
            self.remotes.discard(remote)

    async def _attach(self, remote: _Remote, engine: EngineAddress) -> None:
        """Return when one of the ends has ended. Raises `Stranger` or OSError."""
        self._check(remote)
        path = engine_socket(self._run_dir, engine)
        handshake = Handshake(socket_key(self._secret, path), listens=False)
        local, _ = await asyncio.get_running_loop().create_unix_connection(
            lambda: _Local(remote, handshake), str(path)
        )
        try:
            await remote.closed
        finally:
            local.abort()

    async def _send_file(self, remote: _Remote, wish: Fetch) -> None:
        """Return when the other end has ended. Raises `Stranger` or OSError."""
        self._check(remote)
        async with self._files:
            with contextlib.suppress(FileNotFoundError):
                opening = (self._run_dir, wish.digest, wish.file)
                with await asyncio.to_thread(folders.opened, *opening) as file:
                    file.seek(wish.offset)
                    while data := await asyncio.to_thread(file.read, _PART_BYTES):
                        await remote.can_write.wait()
                        if remote.closed.done():
                            return
                        remote.transport.write(relayed.part(data))
        remote.transport.write(relayed.END)
        remote.transport.close()
        await remote.closed

    def _check(self, remote: _Remote) -> None:
        """Raises `Stranger` or OSError."""
        host = remote.fingerprint
        if host not in noted_hosts(self._run_dir):
            if host not in self._logged:  # it comes again and again
                self._logged.add(host)
                log.warning("an unknown host wanted an engine or files: %s", host[:16])
            raise Stranger
        self._logged.discard(host)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(relayed.BEAT_S)
            self._certificates.context()
            with contextlib.suppress(OSError):
                known = noted_hosts(self._run_dir)
                for each in tuple(self.remotes):
                    if each.fingerprint in known:
                        each.beat()
                    elif each.fingerprint:
                        each.cancel()


class _Remote(asyncio.Protocol):
    """The connection of a web process of another host, or of a host that joins."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.local: asyncio.Transport | None = None
        self.fingerprint = ""  # of a host that joins
        self.first_frame: asyncio.Future[bytes] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._received = b""
        self.can_write = asyncio.Event()
        self.can_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        relayed.tune(transport)
        self.fingerprint = relayed.peer_fingerprint(transport)

    def data_received(self, data: bytes) -> None:
        if self.local is not None:
            self.local.write(data)
            return
        self._received += data
        if len(self._received) < _LENGTH.size or self.first_frame.done():
            return
        end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        if end > _MAX_FIRST_BYTES:
            self.cancel()
        elif len(self._received) >= end:
            self.transport.pause_reading()
            self.first_frame.set_result(self._received[_LENGTH.size : end])
            self._received = self._received[end:]

    def splice(self, local: asyncio.Transport) -> None:
        """From now on `local` gets what comes."""
        self.local = local
        local.write(self._received)
        self._received = b""
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.can_write.set()
        if not self.first_frame.done():
            self.first_frame.set_exception(EOFError())
            self.first_frame.exception()  # read here, so that asyncio does not warn
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self.can_write.clear()
        if self.local is not None:
            self.local.pause_reading()

    def resume_writing(self) -> None:
        self.can_write.set()
        if self.local is not None:
            self.local.resume_reading()

    def beat(self) -> None:
        """A peer that reads too slowly hears enough."""
        if self.can_write.is_set():
            self.transport.write(relayed.BEAT)

    def cancel(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Local(asyncio.Protocol):
    """The connection to the socket of an engine."""

    def __init__(self, remote: _Remote, handshake: Handshake) -> None:
        self._remote = remote
        self._handshake = handshake
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._handshake.opening)

    def data_received(self, data: bytes) -> None:
        if not self._handshake.is_done:
            data = self._prove(data)
        if data:
            self._remote.transport.write(relayed.part(data))

    def _prove(self, data: bytes) -> bytes:
        try:
            reply, rest = self._handshake.feed(data)
        except Stranger:
            self._transport.abort()
            return b""
        self._transport.write(reply)
        if self._handshake.is_done:
            self._remote.splice(self._transport)
        return rest

    def connection_lost(self, exc: Exception | None) -> None:
        self._remote.transport.write(relayed.END)
        self._remote.transport.close()

    def pause_writing(self) -> None:
        self._remote.transport.pause_reading()

    def resume_writing(self) -> None:
        self._remote.transport.resume_reading()
