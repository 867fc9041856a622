"""Who may use the sockets of a home: processes of its user that know the key of the socket.

The key of each socket is derived from a secret of the home, which web process and node have. An
engine gets its own key alone, with its configuration. The kernel names the peer's user. Then both
ends send a random number and prove with it that they know the key, before their first message: the
key itself never travels, and a new node can prove itself to the engines of a dead node.
"""

import asyncio
import hmac
import os
import secrets
import socket
import struct
import sys
from pathlib import Path
from typing import Final, NamedTuple

NUM_BYTES: Final = 32  # of a random number, and of a proof
# An engine reads its socket between steps, which may take minutes. A node always reads.
_TIMEOUT_S: Final = 10.0
_UCRED: Final = struct.Struct("iII")  # Linux's `struct ucred`


class Stranger(Exception):
    """The peer does not know the key of the socket, or belongs to another user."""


class Peer(NamedTuple):
    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end. Only on Linux. Raises OSError."""
    option = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return Peer(*_UCRED.unpack(option))


def check_user(connection: socket.socket) -> None:
    """Raises `Stranger` or OSError. On other systems than Linux the mode of the socket decides."""
    if sys.platform == "linux" and peer_of(connection).uid != os.getuid():
        raise Stranger


def socket_key(secret: bytes, path: Path) -> bytes:
    return hmac.digest(secret, path.name.encode(), "sha256")


class Handshake:
    """One end. Send `opening` first."""

    def __init__(self, key: bytes, *, listens: bool) -> None:
        self._key, self._listens = key, listens
        self._received = b""
        self.opening = secrets.token_bytes(NUM_BYTES)
        self.is_done = False

    def feed(self, received: bytes) -> tuple[bytes, bytes]:
        """Return what to send, and what the peer has sent after its proof. Raises `Stranger`."""
        begun = len(self._received) >= NUM_BYTES
        self._received += received
        opening, proof = self._received[:NUM_BYTES], self._received[NUM_BYTES:][:NUM_BYTES]
        reply = b""
        if not begun and len(opening) == NUM_BYTES:
            reply = self._proof(self.opening, opening, listens=self._listens)
        if len(proof) < NUM_BYTES:
            return reply, b""
        right = self._proof(opening, self.opening, listens=not self._listens)
        if not hmac.compare_digest(proof, right):
            raise Stranger
        self.is_done = True
        return reply, self._received[2 * NUM_BYTES :]

    def _proof(self, own: bytes, other: bytes, *, listens: bool) -> bytes:
        """The proof of one end. The ends differ, so a proof cannot be sent back as one's own."""
        return hmac.digest(self._key, bytes([listens]) + own + other, "sha256")


async def shake_hands(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, *, listens: bool
) -> None:
    """Raises `Stranger`, EOFError or OSError."""
    check_user(writer.get_extra_info("socket"))
    handshake = Handshake(key, listens=listens)
    writer.write(handshake.opening)
    async with asyncio.timeout(_TIMEOUT_S):
        while not handshake.is_done:
            reply, _ = handshake.feed(await reader.readexactly(NUM_BYTES))
            writer.write(reply)
