"""Limits on a client before its request is known, and refusals for the end of a request."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from tests.hostile.raw_http import Answer, smuggled
from tests.platform_.edge_server import EdgeServer, read_answer, read_to_end, send, status_of
from tests.tables import table

_START = b"GET /now HTTP/1.1\r\nhost: a\r\n"
_NEXT = _START + b"\r\n"
_END = b"connection: close\r\n\r\n"
_CHUNKED = b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b"GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"

# The start of a request, and bytes that follow again and again, beyond the memory of a request.
_ENDLESS = {
    "fields": (_START + b"a: b", b"".join(b"a%d:b\r\n" % number for number in range(10_000))),
    "one field": (_START + b"a: b", b"x" * 100_000),
    "one folded field": (_START + b"a: b", b"x" * 99_000 + b"\r\n "),
    "a path": (b"GET /", b"x" * 100_000),
    "a method": (b"G", b"x" * 100_000),
    "a version": (b"GET / HTTP/1.1", b"x" * 100_000),
    "empty lines": (b"", b"\r\n" * 50_000),
    "trailers": (_CHUNKED + b"1\r\na\r\n0\r\n", b"a: b\r\n" * 20_000),
    "the name of a trailer": (_CHUNKED + b"1\r\na\r\n0\r\n", b"a" * 200_000),
    "the value of a trailer": (_CHUNKED + b"1\r\na\r\n0\r\n", b"a: " + b"b" * 200_000),
    "a chunk extension": (_CHUNKED + b"1;", b"a" * 100_000),
}


@contextmanager
def little_memory(server: EdgeServer) -> Iterator[None]:
    """Fails if the server has grown by 20 MB meanwhile."""
    before_mb = server.memory_mb()
    yield
    assert server.memory_mb() - before_mb < 20


def test_too_many_headers_are_refused(server: EdgeServer) -> None:
    before = server.num_refused("headers_too_large")
    assert status_of(server.exchange(_START, _END)) == 200
    within = b"".join(b"a%d: %s\r\n" % (number, b"x" * 320) for number in range(97))
    assert status_of(server.exchange(_START, within, _END)) == 200
    assert server.num_refused("headers_too_large") == before

    fields = b"".join(b"a%d: b\r\n" % number for number in range(100))
    assert status_of(server.exchange(_START, fields, _END)) == 431
    assert server.num_refused("headers_too_large") == before + 1


@table("name", _ENDLESS)
def test_an_endless_request_is_refused_and_costs_no_memory(server: EdgeServer, name: str) -> None:
    start, endless = _ENDLESS[name]

    with little_memory(server):
        answer = server.exchange(start, *[endless] * 400)

    assert status_of(answer) in (400, 431)


def test_a_trailer_is_no_header(server: EdgeServer) -> None:
    with server.connect() as connection:
        send(connection, _CHUNKED, b"3\r\nabc\r\n0\r\nx-forwarded-for: 10.0.0.1\r\n\r\n")
        answer = json.loads(read_answer(connection))

    assert answer["num_bytes"] == 3
    assert "x-forwarded-for" not in answer["headers"]


@table("cut", range(6))
@table("is_slow", [False, True])
def test_a_header_may_end_in_two_packets(server: EdgeServer, cut: int, is_slow: bool) -> None:
    first = b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n"
    second = b"GET /2 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    begin, end = first[: len(first) - cut], first[len(first) - cut :]
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in [bytes([byte]) for byte in begin] if is_slow else [begin]:
            send(connection, part)
        server.num_refused("pipelined")  # the server has read what was sent
        send(connection, end + second)
        answer = read_to_end(connection)

    assert re.findall(rb'"path": "/(\w+)"', answer) == [b"1", b"2"]


def test_any_number_of_requests_ahead_of_answers_is_answered(server: EdgeServer) -> None:
    with little_memory(server), server.connect() as connection:
        sender = Thread(target=send, args=(connection, _NEXT * 5_000, _LAST))
        sender.start()
        answer = read_to_end(connection)
        sender.join()

    assert answer.count(b"HTTP/1.1 200") == 5_001
    assert b"/last" in answer


def test_a_body_after_its_answer_is_read_to_a_limit(server: EdgeServer) -> None:
    before = server.num_refused("body_unread")
    with server.connect() as connection:
        # A connection goes on after a body that the application did not read.
        send(connection, b"POST /now HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n")
        assert read_answer(connection) == b"{}"
        send(connection, b"abcde" + _START + b"content-length: 1000000000\r\n\r\n")
        assert read_answer(connection) == b"{}"
        send(connection, *[bytes(2**16)] * 2000)

    assert server.num_refused("body_unread") == before + 1


@table(
    "framing, body",
    [
        (b"content-length: 1000000000", [bytes(2**16)] * 16 + [b"a"]),
        (b"transfer-encoding: chunked", [b"no length\r\n"]),
    ],
)
def test_no_request_has_two_answers(server: EdgeServer, framing: bytes, body: list[bytes]) -> None:
    """A client that reuses the connection would take a second answer for its next request's."""
    with server.connect() as connection:
        send(connection, b"POST /now HTTP/1.1\r\nhost: a\r\n" + framing + b"\r\n\r\n")
        assert read_answer(connection) == b"{}"
        send(connection, *body)

        assert read_to_end(connection) == b""


def test_an_upgrade_is_answered_as_a_plain_request(server: EdgeServer) -> None:
    fields = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    with server.connect() as connection:
        for _ in range(100):  # with more bytes than one header may have
            send(connection, _START + fields + b"a: " + b"x" * 1000 + b"\r\n\r\n")
            assert read_answer(connection) == b"{}"
        send(connection, _NEXT)
        assert read_answer(connection) == b"{}"


def test_a_client_that_waits_to_send_gets_leave_from_the_application(server: EdgeServer) -> None:
    fields = b"host: a\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n"
    with server.connect() as refused, server.connect() as accepted:
        send(refused, b"POST /now HTTP/1.1\r\n" + fields)
        assert refused.recv(12) == b"HTTP/1.1 200"
        send(accepted, b"POST /echo HTTP/1.1\r\n" + fields)
        assert accepted.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        send(accepted, b"abc")
        assert json.loads(read_answer(accepted))["num_bytes"] == 3


@table("is_chunked", [False, True])
def test_a_large_body_arrives_whole(server: EdgeServer, is_chunked: bool) -> None:
    parts = [bytes([number % 256]) * 70_000 for number in range(50)]
    framing = b"content-length: %d" % sum(map(len, parts))
    if is_chunked:
        framing = b"transfer-encoding: chunked"
        parts = [*(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]
    with server.connect() as connection:
        for _ in range(2):
            send(connection, b"POST /echo HTTP/1.1\r\nhost: a\r\n" + framing + b"\r\n\r\n", *parts)
            assert json.loads(read_answer(connection))["num_bytes"] == 50 * 70_000


# The sent bytes, and the status. Each connection is closed.
_CASES = {
    **{request.name: (b"".join(request.parts), 400) for request in smuggled(b"key")},
    "no host": (b"GET /now HTTP/1.1\r\n\r\n", 400),
    "two equal hosts": (b"GET /now HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", 400),
    "two hosts": (b"GET /now HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", 400),
    "no host of HTTP/1.0": (b"GET /now HTTP/1.0\r\n\r\n", 200),
    "a host of HTTP/1.0": (b"GET /now HTTP/1.0\r\nhost: a\r\n\r\n", 200),
    "an empty host": (b"GET /now HTTP/1.1\r\nhost:\r\n" + _END, 200),
    "no version": (b"GET /now\r\n\r\n", 400),
    "an old version": (b"GET /now HTTP/0.9\r\nhost: a\r\n\r\n", 400),
    "a new version": (b"GET /now HTTP/2.0\r\nhost: a\r\n\r\n", 400),
    "many headers": (_START + b"a: b\r\n" * 100 + b"\r\n", 431),
    "a long header": (_START + b"a: " + b"b" * 40_000 + b"\r\n\r\n", 431),
    "many trailers": (_CHUNKED + b"0\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
    "a long trailer": (_CHUNKED + b"0\r\na: " + b"b" * 40_000 + b"\r\n\r\n", 431),
    "a trailer without an end": (_CHUNKED + b"0\r\n" + b"b" * 40_000, 431),
}


@table("name", _CASES)
def test_it_is_answered_once(server: EdgeServer, name: str) -> None:
    data, status = _CASES[name]

    assert Answer(server.exchange(data, _NEXT), True).statuses() == [status]
