"""The engine's end of the socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.transport.framing import pack
from serving.transport.messages import Cancel, Ping
from serving.transport.server import Connection, SocketServer

GREETING = Ping(7)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    made = SocketServer(tmp_path / "e.sock", lambda: GREETING)
    yield made
    made.close()


@pytest.fixture
def peer(server: SocketServer, tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(str(tmp_path / "e.sock"))
        server.poll(1)
        yield made


@pytest.fixture
def connection(server: SocketServer, peer: socket.socket) -> Connection:
    peer.sendall(pack(Ping(1)))
    (incoming,) = server.poll(1)
    return incoming.connection


def gone(server: SocketServer) -> list[Connection]:
    return [each.connection for each in server.poll(1) if each.message is None]


def test_it_tells_that_a_peer_has_gone(
    server: SocketServer, peer: socket.socket, connection: Connection
) -> None:
    peer.close()
    assert gone(server) == [connection]
    assert gone(server) == []


def test_it_tells_so_as_well_when_it_was_found_out_by_sending(
    server: SocketServer, peer: socket.socket, connection: Connection
) -> None:
    peer.close()
    connection.send(Ping(2))
    assert not connection.is_open
    assert gone(server) == [connection]
    assert gone(server) == []


def test_what_a_peer_said_before_it_went_comes_first(
    server: SocketServer, peer: socket.socket, connection: Connection
) -> None:
    peer.sendall(pack(Cancel(1, 0)))
    peer.close()
    messages = [each.message for each in (*server.poll(1), *server.poll(1))]
    assert messages == [Cancel(1, 0), None]


def test_a_peer_that_talks_nonsense_is_gone(
    server: SocketServer, peer: socket.socket, connection: Connection
) -> None:
    peer.sendall(b"\xff" * 64)
    assert gone(server) == [connection]
