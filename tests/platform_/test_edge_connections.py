"""How many connections there may be, and how long each may wait."""

import re
import resource
import select
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack

import psutil
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


def test_a_connection_that_sends_nothing_is_closed(shared: Shared) -> None:
    running = shared(**_SOON)
    before = running.num_refused("silent")
    with running.connect() as connection:
        assert read_to_end(connection) == b""
        assert running.num_refused("silent") == before + 1


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


def test_an_unread_body_has_the_same_time(shared: Shared) -> None:
    running = shared(**_SOON)
    before = running.num_refused("body_unread")
    with running.connect() as connection:
        send(connection, b"POST /now HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n")
        assert read_answer(connection) == b"{}"
        assert read_to_end(connection) == b""
        assert running.num_refused("body_unread") == before + 1


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


def test_a_running_request_has_no_such_deadline_and_an_idle_connection_its_own(kind: str) -> None:
    with (
        run_edge_server(kind, keep_alive_s=0.2, **_SOON) as running,
        running.connect() as waiting,
        running.connect() as silent,
        running.connect() as idle,
    ):
        send(waiting, b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n")
        send(idle, _GET)
        assert read_answer(idle) == b"{}"
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


def test_one_address_has_so_many_connections(kind: str) -> None:
    with run_edge_server(kind, max_per_address=3) as running, ExitStack() as stack:
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


def test_a_new_client_takes_the_turn_of_one_that_sends_nothing(kind: str) -> None:
    with run_edge_server(kind, max_connections=20) as running, ExitStack() as stack:
        silent = [stack.enter_context(running.connect()) for _ in range(60)]
        until(lambda: status_of(running.exchange(_GET_LAST)) == 200)
        assert running.num_refused("connections") > 0
        assert len(silent) == 60


def test_connections_with_requests_are_not_ended_for_new_ones(kind: str) -> None:
    with run_edge_server(kind, max_connections=5) as running, ExitStack() as stack:
        running_ones = [stack.enter_context(running.connect()) for _ in range(5)]
        for connection in running_ones:
            send(connection, b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n")
        until(lambda: status_of(running.exchange(_GET_LAST)) in (0, 503))
        assert all(map(is_silent, running_ones))


def test_descriptors_are_kept_in_reserve(kind: str) -> None:
    with run_edge_server(kind) as running, ExitStack() as stack:
        psutil.Process(running.process.pid).rlimit(resource.RLIMIT_NOFILE, (316, 316))
        for _ in range(400):
            stack.enter_context(running.connect())
        until(lambda: status_of(running.exchange(_GET_LAST)) == 200)
        assert running.process.num_fds() < 250


def test_many_connections_of_one_address_are_answered(shared: Shared) -> None:
    running = shared()
    with ExitStack() as stack:
        connections = [stack.enter_context(running.connect()) for _ in range(600)]
        for connection in connections:
            send(connection, _GET)
        assert all(read_answer(connection) == b"{}" for connection in connections)


def test_clients_that_leave_early_leave_no_traceback(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    requests = [
        _GET,
        _GET * 3,
        b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nabc",
        b"POST /now HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nabc",
        b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET",
    ]
    with run_edge_server(kind) as running:
        for request in requests * 10:
            with running.connect() as connection:
                send(connection, request)
                # With this option `close` resets the connection.
                reset = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        assert status_of(running.exchange(_GET_LAST)) == 200
    log = capfd.readouterr().err
    assert "Traceback" not in log
    assert not re.search("ERROR|Exception", log)


def test_a_server_with_an_unfinished_header_stops_in_order(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with run_edge_server(kind) as running:
        connection = running.connect()
        send(connection, b"GET /now HTTP/1.1\r\nhost: a\r\n")
        assert status_of(running.exchange(_GET_LAST)) == 200
    connection.close()

    assert "the lifespan has ended" in capfd.readouterr().err
