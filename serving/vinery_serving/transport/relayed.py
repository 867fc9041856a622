"""The gateway's end of a connection to an engine of another host, through the relay of that host.

The connection is TLS with certificates of both ends. The gateway first says which engine it means,
and then sends what it would send to the socket of that engine. Parts come back: bytes of the
engine, its end, and every `BEAT_S` a sign of life of the relay, because an engine answers between
steps only, which may take minutes. A host from which nothing comes for 4 to 6 s is lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import struct
from collections.abc import Callable
from ssl import SSLContext
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from vinery_serving.transport import sockets
from vinery_serving.transport.handshake import Stranger

# Returns the certificates of this process, renewed where they are old.
Key = Callable[[], SSLContext]
BEAT_S: Final = 2.0
CONNECT_S: Final = 10.0
_PART: Final = struct.Struct(">IB")
_READ_BYTES: Final = 1 << 16
_MAX_SILENT_BEATS: Final = 2
_MAX_PAUSE_S: Final = 2.0
_MAX_UNACKNOWLEDGED_MS: Final = 10_000
_KEEPALIVE_S: Final = 5
_NUM_KEEPALIVES: Final = 3


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first frame of a gateway: the engine that it means."""

    model_id: Annotated[int, Meta(ge=0)]
    key: Annotated[str, Meta(pattern=rf"^{sockets.ENGINE_KEY}\Z")]
    replica: Annotated[int, Meta(ge=0)]


class Join(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first and only frame of a host that joins. It has no certificate yet."""

    token: Annotated[str, Meta(max_length=256)]
    name: Annotated[str, Meta(max_length=253)]
    fingerprint: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first and only frame of a host that lacks files: it gets parts from `offset` on, and the
    end. What the host does not have, ends at once."""

    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]  # of the folder, see `folders`
    file: Annotated[str, Meta(max_length=1024)]  # empty: the list of files
    offset: Annotated[int, Meta(ge=0, le=(1 << 62))]


def part(data: bytes) -> bytes:
    """A part with bytes of an engine or a file: their number and one, a zero, and they."""
    return _PART.pack(len(data) + 1, 0) + data


BEAT: Final = bytes(4)  # a part of no length
# The engine has ended its connection, it may have crashed; or it is the end of a file.
END: Final = _PART.pack(1, 1)


class Attached:
    """Stands for the handshake of a local socket, which the relay does."""

    is_done: Final = True

    def __init__(self, engine: sockets.EngineAddress) -> None:
        self.opening = sockets.pack(Attach(*engine))

    def feed(self, received: bytes) -> tuple[bytes, bytes]:
        return b"", received


def fingerprint_of(certificate: bytes) -> str:
    """The SHA-256 of the public key: a renewed certificate of the same host has the same."""
    # Imported here: a gateway without other hosts needs none of it.
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from cryptography.x509 import load_der_x509_certificate

    key = load_der_x509_certificate(certificate).public_key()
    public = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(public).hexdigest()


def peer_fingerprint(transport: asyncio.BaseTransport) -> str:
    """Of the other end of a TLS connection. "" without a certificate."""
    certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return fingerprint_of(certificate) if certificate else ""


def tune(transport: asyncio.BaseTransport) -> None:
    """Send at once, and notice a peer that is gone, also one that has sent no end."""
    connection: Any = transport.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (  # macOS lacks two of them
        ("TCP_KEEPIDLE", _KEEPALIVE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_S),
        ("TCP_KEEPCNT", _NUM_KEEPALIVES),
        ("TCP_USER_TIMEOUT", _MAX_UNACKNOWLEDGED_MS),
    ):
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def longer(pause_s: float) -> float:
    """The next pause before another attempt, so that not all gateways come back at once."""
    return min(2 * pause_s, _MAX_PAUSE_S) * random.uniform(0.5, 1.0)


async def connect(
    address: sockets.TlsAddress, key: Key, link: asyncio.Protocol, leave: Callable[[], None]
) -> None:
    """Connect `link` to an engine. `leave` closes the link without blame for the engine. Raises
    OSError, or `Stranger` if another host has answered."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_S):
        transport, _ = await loop.create_connection(
            lambda: _Parts(link, leave), address.host, address.port, ssl=key()
        )
    if peer_fingerprint(transport) != address.fingerprint:
        transport.abort()
        raise Stranger


class _Parts(asyncio.BufferedProtocol):
    """With a buffer of its own: for any other protocol uvloop takes 256 KiB from the system and
    gives them back, for each part."""

    def __init__(self, link: asyncio.Protocol, leave: Callable[[], None]) -> None:
        self._link, self._leave = link, leave
        self._parts = sockets.FrameReader()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._num_silent = 0
        self._has_engine_ended = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tune(transport)
        self._link.connection_made(transport)
        self._watch()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._num_silent = 0
        try:
            parts = self._parts.feed(self._buffer[:nbytes])
        except sockets.InvalidFrame:
            self._leave()
            return
        for each in parts:
            if len(each) > 1:
                self._link.data_received(each[1:])
            elif each:
                self._has_engine_ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._has_engine_ended:  # what has ended is the relay, its host or the network
            self._leave()
        self._link.connection_lost(exc)

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    def _watch(self) -> None:
        """Counts beats, not seconds: a gateway that was held up has not read what had come."""
        if self._num_silent >= _MAX_SILENT_BEATS:
            self._leave()
            return
        self._num_silent += 1
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._watch)
