"""How many connections there may be, how long each may wait, and what it can make us hold."""

import resource
import select
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from tests.conftest import until
from tests.platform_.edge_application import LARGE_BYTES
from tests.platform_.edge_server import (
    EdgeServer,
    read_answer,
    read_to_end,
    run_edge_server,
    send,
    status_of,
)

_GET = b"GET /now HTTP/1.1\r\nhost: a\r\n\r\n"
_GET_LAST = b"GET /now HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
_SOON = {"header_timeout_s": 1.0, "sweep_interval_s": 0.05}
_IDLE_SOON = {"keep_alive_s": 0.2, "sweep_interval_s": 0.05}

Shared = Callable[..., EdgeServer]


def is_silent(connection: socket.socket) -> bool:
    """Whether the server has neither answered nor closed it."""
    return not select.select([connection], [], [], 0)[0]


def test_a_connection_that_sends_nothing_or_no_body_is_closed(shared: Shared) -> None:
    running = shared(**_SOON)
    num_silent, num_unread = running.num_refused("silent"), running.num_refused("body_unread")
    with running.connect() as connection:
        assert read_to_end(connection) == b""
        assert running.num_refused("silent") == num_silent + 1

    with running.connect() as connection:
        send(connection, b"POST /now HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n")
        assert read_answer(connection) == b"{}"
        assert read_to_end(connection) == b""
        assert running.num_refused("body_unread") == num_unread + 1


def test_a_header_that_trickles_in_is_ended(shared: Shared) -> None:
    running = shared(**_SOON)
    before = running.num_refused("header_timeout")
    with running.connect() as connection:
        connection.settimeout(0.05)
        received = b""
        send(connection, b"GET /now HTTP/1.1\r\na: ")
        for _ in range(600):
            send(connection, b"x")
            try:
                if not (chunk := connection.recv(1000)):
                    break
                received += chunk
            except TimeoutError:
                continue
            except ConnectionResetError:
                break
        else:
            raise AssertionError("the connection stayed open")
        assert status_of(received) in (0, 408)
        assert running.num_refused("header_timeout") == before + 1


def test_an_idle_connection_outlives_the_time_for_headers_but_not_a_header(shared: Shared) -> None:
    running = shared(**_SOON)
    with running.connect() as idle, running.connect() as silent:
        send(idle, _GET)
        assert read_answer(idle) == b"{}"
        read_to_end(silent)  # the time for headers has passed
        send(idle, _GET)
        assert read_answer(idle) == b"{}"
        send(idle, b"GET")
        assert status_of(read_to_end(idle)) == 408


def test_a_running_request_has_no_such_deadline_and_an_idle_connection_its_own() -> None:
    with (
        run_edge_server(keep_alive_s=0.2, **_SOON) as running,
        running.connect() as waiting,
        running.connect() as idle,
    ):
        send(waiting, b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n")
        send(idle, _GET)
        assert read_answer(idle) == b"{}"
        with running.connect() as silent:  # whose time ends after that of the request would
            assert read_to_end(silent) == read_to_end(idle) == b""
        assert is_silent(waiting)


def test_a_client_that_does_not_read_its_answer_is_ended(shared: Shared) -> None:
    running = shared(**_IDLE_SOON)
    before = running.num_refused("answer_unread")
    with running.connect() as connection:
        send(connection, b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        until(lambda: running.num_refused("answer_unread") == before + 1)
        assert len(read_to_end(connection)) < LARGE_BYTES


def test_a_client_that_reads_late_gets_its_answer(shared: Shared) -> None:
    running = shared()
    with running.connect() as connection:
        send(connection, b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert running.num_refused("answer_unread") == 0
        assert len(read_to_end(connection)) > LARGE_BYTES


def test_one_address_has_so_many_connections() -> None:
    with run_edge_server(max_per_address=3) as running, ExitStack() as stack:
        held = [stack.enter_context(running.connect()) for _ in range(2)]
        for connection in held:
            send(connection, _GET)
            assert read_answer(connection) == b"{}"
        third = stack.enter_context(running.connect())
        send(third, _GET)
        assert read_answer(third) == b"{}"
        assert status_of(running.exchange(_GET_LAST)) in (0, 503)
        third.close()
        until(lambda: status_of(running.exchange(_GET_LAST)) == 200)
        assert running.num_refused("address") >= 1


def test_a_new_client_takes_the_turn_of_one_that_sends_nothing() -> None:
    with run_edge_server(max_connections=20) as running, ExitStack() as stack:
        silent = [stack.enter_context(running.connect()) for _ in range(60)]
        until(lambda: status_of(running.exchange(_GET_LAST)) == 200)
        assert running.num_refused("connections") > 0
        assert len(silent) == 60


def test_connections_with_requests_are_not_ended_for_new_ones() -> None:
    with run_edge_server(max_connections=5) as running, ExitStack() as stack:
        running_ones = [stack.enter_context(running.connect()) for _ in range(5)]
        for connection in running_ones:
            send(connection, b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n")
        until(lambda: status_of(running.exchange(_GET_LAST)) in (0, 503))
        assert all(map(is_silent, running_ones))


def test_descriptors_are_kept_in_reserve() -> None:
    with run_edge_server() as running, ExitStack() as stack:
        running.process.rlimit(resource.RLIMIT_NOFILE, (316, 316))
        for _ in range(400):
            stack.enter_context(running.connect())
        until(lambda: status_of(running.exchange(_GET_LAST)) == 200)
        assert running.process.num_fds() < 250


def test_half_a_header_delays_no_stop(capfd: pytest.CaptureFixture[str]) -> None:
    with run_edge_server() as running:
        connection = running.connect()
        send(connection, b"GET /now HTTP/1.1\r\nhost: a\r\n")
        assert status_of(running.exchange(_GET_LAST)) == 200
    connection.close()

    assert "the lifespan has ended" in capfd.readouterr().err


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


def test_what_a_connection_holds_is_bounded() -> None:
    found = {}
    with run_edge_server(header_timeout_s=300) as server, ExitStack() as stack:
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
