"""The engine's end of the socket."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.engine import KEY
from vinery_serving.transport.handshake import NUM_BYTES, Handshake, Stranger
from vinery_serving.transport.messages import Cancel, Ping
from vinery_serving.transport.server import Connection, SocketServer, bound
from vinery_serving.transport.sockets import pack


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    server = SocketServer(bound(tmp_path / "e.sock"), KEY, lambda: Ping(7))
    yield server
    server.close()


@pytest.fixture
def peer(server: SocketServer, tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(tmp_path / "e.sock"))
        assert introduce(server, peer, KEY)
        yield peer


@pytest.fixture
def connection(server: SocketServer, peer: socket.socket) -> Connection:
    peer.sendall(pack(Ping(1)))
    (incoming,) = server.poll(1)
    return incoming.connection


def introduce(server: SocketServer, peer: socket.socket, key: bytes) -> bool:
    """Whether the server proves itself to a peer with this key, and greets the peer."""
    handshake = Handshake(key, listens=False)
    server.poll(1)
    peer.sendall(handshake.opening)
    server.poll(1)
    reply, _ = handshake.feed(peer.recv(2 * NUM_BYTES))
    peer.sendall(reply)
    server.poll(1)
    return handshake.is_done and peer.recv(1000) == pack(Ping(7))


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
    assert closed(server) == []


def test_a_peer_with_an_invalid_frame_is_disconnected(server, peer, connection):
    peer.sendall(b"\xff" * 64)
    assert closed(server) == [connection]


def messages(server: SocketServer) -> list[object]:
    return [each.message for each in server.poll(0.1) if each.message is not None]


def test_a_peer_without_the_key_gets_no_message_and_sends_none(server, peer, tmp_path):
    def stranger() -> socket.socket:
        other = socket.socket(socket.AF_UNIX)
        other.connect(str(tmp_path / "e.sock"))
        server.poll(1)
        return other

    def send_messages(other: socket.socket) -> None:
        other.sendall(pack(Cancel(1, 5)) * 100)

    def use_another_key(other: socket.socket) -> None:
        with pytest.raises(Stranger):  # the engine proves nothing to such a peer either
            introduce(server, other, b"another")
        other.sendall(bytes(NUM_BYTES))

    def send_back(other: socket.socket) -> None:
        opening = other.recv(NUM_BYTES)
        other.sendall(opening)
        server.poll(1)
        other.sendall(other.recv(NUM_BYTES))

    for attack in (send_messages, use_another_key, send_back):
        with stranger() as other:
            attack(other)
            assert messages(server) == []
            server.broadcast(Ping(9))
            other.settimeout(30)
            received = b""
            with contextlib.suppress(ConnectionError):  # it was closed with unread bytes
                while more := other.recv(1000):
                    received += more
            assert pack(Ping(7)) not in received
            assert pack(Ping(9)) not in received
    assert peer.recv(1000) == pack(Ping(9)) * 3
    peer.sendall(pack(Cancel(1, 5)))
    assert messages(server) == [Cancel(1, 5)]


def test_peers_that_prove_nothing_do_not_pile_up(server, peer, tmp_path):
    with contextlib.ExitStack() as others:
        for _ in range(100):
            other = others.enter_context(socket.socket(socket.AF_UNIX))
            other.connect(str(tmp_path / "e.sock"))
            server.poll(1)
        assert len(server._selector.get_map()) < 50
    peer.sendall(pack(Cancel(1, 5)))
    assert Cancel(1, 5) in messages(server) + messages(server)


def test_a_process_of_another_user_is_not_heard_even_with_the_key(server, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(tmp_path / "e.sock"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "getuid", lambda: os.geteuid() + 1)
            server.poll(1)
        assert other.recv(1000) == b""
