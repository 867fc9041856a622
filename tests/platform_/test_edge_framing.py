"""Requests whose end is not certain: both servers refuse each of them with the same status, so that
no proxy and no server can read two requests where the other reads one."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from tests.hostile.raw_http import Answer, smuggled
from tests.platform_.edge_server import SERVERS, EdgeServer, run_edge_server
from tests.tables import table

_CHUNKED = b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
_NEXT = b"GET /now HTTP/1.1\r\nhost: a\r\n\r\n"

# What is sent, and the status. Each connection is closed.
_CASES = {
    **{request.name: (b"".join(request.parts), 400) for request in smuggled(b"key")},
    "no host": (b"GET /now HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /now HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
    "no version": (b"GET /now\r\n\r\n", 400),
    "an old version": (b"GET /now HTTP/0.9\r\nhost: a\r\n\r\n", 400),
    "a new version": (b"GET /now HTTP/2.0\r\nhost: a\r\n\r\n", 400),
    "many headers": (_NEXT[:-2] + b"a: b\r\n" * 100 + b"\r\n", 431),
    "a long header": (_NEXT[:-2] + b"a: " + b"b" * 40_000 + b"\r\n\r\n", 431),
    "many trailers": (_CHUNKED + b"0\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
    "a long trailer": (_CHUNKED + b"0\r\na: " + b"b" * 40_000 + b"\r\n\r\n", 431),
    "a trailer without an end": (_CHUNKED + b"0\r\n" + b"b" * 40_000, 431),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[Mapping[str, EdgeServer]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(run_edge_server(name)) for name in SERVERS}


@table("name", _CASES)
def test_it_is_refused_by_both_servers(servers: Mapping[str, EdgeServer], name: str) -> None:
    data, status = _CASES[name]

    received = {each: server.exchange(data, _NEXT) for each, server in servers.items()}

    statuses = {each: Answer(answer, True).statuses() for each, answer in received.items()}
    assert statuses == {each: [status] for each in SERVERS}
