"""The engine's end of the socket: non-blocking, single-threaded, driven by `poll`.

The engine's only thread calls `poll` between two steps, so no call here may block. Frames that
a peer does not read are buffered up to a limit; a peer beyond the limit is disconnected.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from vinery_serving.transport.handshake import Handshake, Stranger, check_user
from vinery_serving.transport.messages import ToEngine
from vinery_serving.transport.sockets import FrameReader, InvalidFrame, pack

_READ_BYTES: Final = 1 << 18
_MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
_MAX_UNKNOWN: Final = 32  # Peers that have proved nothing yet; the oldest one gives way


class Connection:
    """The connection of one gateway. `send` never blocks. Not `is_open`: the peer is gone."""

    def __init__(
        self,
        peer: socket.socket,
        selector: selectors.BaseSelector,
        handshake: Handshake,
        greeting: Callable[[], msgspec.Struct],
        on_close: Callable[[Connection], None],
    ) -> None:
        self._socket, self._handshake, self._greeting = peer, handshake, greeting
        self._selector, self._on_close = selector, on_close
        self._frames = FrameReader()
        self._unsent = bytearray()
        self._decode = msgspec.msgpack.Decoder(ToEngine).decode
        self.is_open = True
        # The connection of an unknown peer or a node gets none, see `Keep`.
        self.gets_broadcasts = False
        selector.register(peer, selectors.EVENT_READ, self)
        self._send(handshake.opening)

    @property
    def is_known(self) -> bool:
        return self._handshake.is_done

    def send(self, message: msgspec.Struct) -> None:
        if self.is_open:
            self._send(pack(message))

    def _send(self, frame: bytes) -> None:
        if not self._unsent:
            frame = frame[self._write(frame) :]
        if frame and self.is_open:
            self._unsent += frame
            if len(self._unsent) > _MAX_UNSENT_BYTES:
                self.close()
            else:
                self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)

    def receive(self) -> list[ToEngine]:
        """Return the messages that arrived. Closes the connection at its end, on a bad frame, and
        if the peer is a stranger."""
        try:
            if received := self._socket.recv(_READ_BYTES):
                if not self.is_known:
                    received = self._prove(received)
                return [self._decode(frame) for frame in self._frames.feed(received)]
        except BlockingIOError:
            return []
        except (OSError, InvalidFrame, Stranger, msgspec.MsgspecError):
            pass
        self.close()
        return []

    def _prove(self, received: bytes) -> bytes:
        reply, rest = self._handshake.feed(received)
        self._send(reply)
        if self.is_known:
            self.gets_broadcasts = True
            self.send(self._greeting())
        return rest

    def flush(self) -> None:
        del self._unsent[: self._write(bytes(self._unsent))]
        if not self._unsent:
            self._watch(selectors.EVENT_READ)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._selector.unregister(self._socket)
            self._socket.close()
            self._on_close(self)

    def _write(self, frame: bytes) -> int:
        try:
            return self._socket.send(frame)
        except BlockingIOError:
            return 0
        except ConnectionError:
            # The peer is gone. `receive` closes the connection after reading what the peer had
            # sent: a `Cancel` has the number of tokens in the usage record.
            return len(frame)
        except OSError:
            self.close()
            return 0

    def _watch(self, events: int) -> None:
        if self.is_open:
            self._selector.modify(self._socket, events, self)


class Incoming(NamedTuple):
    """A message and its connection. `message` is None once the gateway has disconnected."""

    connection: Connection
    message: ToEngine | None


class SocketServer:
    def __init__(
        self, listener: socket.socket, key: bytes, greeting: Callable[[], msgspec.Struct]
    ) -> None:
        """Listen on a socket of `bound`. `greeting` makes the first message to each known peer."""
        self._key, self._greeting = key, greeting
        self._unknown: list[Connection] = []
        self._closed: list[Connection] = []  # not yet returned by `poll`
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Also call `on_readable` from `poll` whenever this descriptor is readable."""
        self._selector.register(fd, selectors.EVENT_READ, on_readable)

    def unwatch(self, fd: int) -> None:
        self._selector.unregister(fd)

    def poll(self, timeout_s: float) -> list[Incoming]:
        incoming: list[Incoming] = []
        for key, events in self._selector.select(0 if self._closed else timeout_s):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, Connection):
                if events & selectors.EVENT_WRITE:
                    key.data.flush()
                if events & selectors.EVENT_READ:
                    incoming += [Incoming(key.data, each) for each in key.data.receive()]
            else:
                key.data()
        # A failed `send` closes a connection, too.
        incoming += [Incoming(connection, None) for connection in self._closed]
        self._closed.clear()
        return incoming

    def broadcast(self, message: msgspec.Struct) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Connection) and key.data.gets_broadcasts:
                key.data.send(message)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Connection):
                key.data.close()
        self._listener.close()
        self._selector.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            peer, _ = self._listener.accept()
            try:
                check_user(peer)
            except (OSError, Stranger):
                peer.close()
                return
            peer.setblocking(False)
            handshake = Handshake(self._key, listens=True)
            self._note_unknown(
                Connection(peer, self._selector, handshake, self._greeting, self._closed.append)
            )

    def _note_unknown(self, connection: Connection) -> None:
        self._unknown = [each for each in self._unknown if each.is_open and not each.is_known]
        if len(self._unknown) >= _MAX_UNKNOWN:
            self._unknown.pop(0).close()
        self._unknown.append(connection)


def bound(path: Path) -> socket.socket:
    """A socket for processes of this user, which does not listen yet. Raises OSError."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    return listener
