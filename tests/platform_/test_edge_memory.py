"""What a connection can make the server hold before its client is known: at most 64 KiB."""

import socket
from contextlib import ExitStack, suppress

from tests.platform_.edge_server import EdgeServer, run_edge_server

_NUM_CONNECTIONS = 100
_MOST_KIB = 64.0
_START = b"GET /now HTTP/1.1\r\nhost: a\r\n"
_NEVER = b"GET /never HTTP/1.1\r\nhost: a\r\n"
_LONG = b"a: " + b"x" * 31_000 + b"\r\n"
_MUCH = bytes(400_000)
_CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
_HELD = {
    "one long header": _START + _LONG,
    "many headers": _START + b"".join(b"a%d: %b\r\n" % (at, b"x" * 300) for at in range(98)),
    "a long target": b"GET /" + b"x" * 31_000,
    "requests ahead": _NEVER + _LONG + b"\r\n" + (_START + b"\r\n") * 10_000,
    "a body that is not read": _NEVER + _LONG + b"content-length: 1000000\r\n\r\n" + _MUCH,
    "a body in chunks": _NEVER + _LONG + _CHUNKED + b"ffff\r\n" + _MUCH,
    "a body after its answer": _START + _LONG + b"content-length: 500000\r\n\r\n" + _MUCH,
    "trailers": _START + _CHUNKED + b"0\r\n" + b"a: b\r\n" * 99,
    "an answer that is not read": _START.replace(b"/now", b"/large") + _LONG + b"\r\n",
}


def test_what_a_connection_holds_is_bounded(kind: str) -> None:
    found = {}
    with run_edge_server(kind, header_timeout_s=300) as server, ExitStack() as stack:
        hold(server, stack, _START)  # what the first connections load
        for name, data in _HELD.items():
            before_mb = settled_mb(server)
            hold(server, stack, data)
            found[name] = (settled_mb(server) - before_mb) * 1024 / _NUM_CONNECTIONS

    # The allocator asks the system for large parts, in which what one kind freed serves the next.
    assert sum(found.values()) / len(found) <= _MOST_KIB, found
    assert {name: kib for name, kib in found.items() if kib > 2 * _MOST_KIB} == {}, found


def hold(server: EdgeServer, stack: ExitStack, data: bytes) -> None:
    """Connections that have sent as much as the server takes, and stay open."""
    for _ in range(_NUM_CONNECTIONS):
        connection = stack.enter_context(server.connect())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        left = data
        with suppress(BlockingIOError):
            while left:
                left = left[connection.send(left) :]


def settled_mb(server: EdgeServer) -> float:
    """The memory when the server has read what it reads."""
    before_mb = -1.0
    while (after_mb := server.memory_mb()) != before_mb:
        before_mb = after_mb
        for _ in range(20):
            server.num_refused("silent")
    return after_mb
