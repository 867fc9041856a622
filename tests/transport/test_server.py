"""The engine's end of the socket."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from vinery_serving.transport.messages import Cancel, Ping
from vinery_serving.transport.server import Connection, SocketServer
from vinery_serving.transport.sockets import pack


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    server = SocketServer(tmp_path / "e.sock", lambda: Ping(7))
    yield server
    server.close()


@pytest.fixture
def peer(server: SocketServer, tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(tmp_path / "e.sock"))
        server.poll(1)
        yield peer


@pytest.fixture
def connection(server: SocketServer, peer: socket.socket) -> Connection:
    peer.sendall(pack(Ping(1)))
    (incoming,) = server.poll(1)
    return incoming.connection


def closed(server: SocketServer) -> list[Connection]:
    return [each.connection for each in server.poll(1) if each.message is None]


def test_a_peer_is_reported_once_when_a_send_fails(server, peer, connection):
    peer.close()
    connection.send(Ping(2))
    assert closed(server) == [connection]
    assert not connection.is_open
    assert closed(server) == []


def test_a_failed_send_loses_no_message_that_the_peer_has_sent_before_its_end(
    server, peer, connection
):
    connection.send(Ping(2))  # unread at its end, so the first send fails with another error
    peer.sendall(pack(Cancel(1, 5)))
    peer.close()
    connection.send(Ping(3))
    connection.send(Ping(4))
    incoming = [*server.poll(1), *server.poll(1)]
    assert [each.message for each in incoming] == [Cancel(1, 5), None]


def test_the_last_messages_of_a_peer_come_before_its_end_which_comes_once(server, peer, connection):
    peer.sendall(pack(Cancel(1, 0)))
    peer.close()
    incoming = [*server.poll(1), *server.poll(1)]
    assert [each.message for each in incoming] == [Cancel(1, 0), None]
    assert {each.connection for each in incoming} == {connection}
    assert closed(server) == []


def test_a_peer_with_an_invalid_frame_is_disconnected(server, peer, connection):
    peer.sendall(b"\xff" * 64)
    assert closed(server) == [connection]
