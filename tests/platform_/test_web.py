"""One web process before it serves, and the client address of a request behind proxies."""

import argparse
import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from tests.tables import table
from vinery.cli import web
from vinery.cli.web import behind
from vinery.process import heartbeats, uvicorn_server


@pytest.fixture
def switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switch_interval")
def test_threads_give_the_event_loop_the_global_lock_within_half_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[float] = []

    def serve(*_: Any, **__: Any) -> None:
        served.append(sys.getswitchinterval())

    monkeypatch.setattr(uvicorn_server, "serve", serve)
    monkeypatch.setattr(heartbeats, "end", lambda: None)
    monkeypatch.setattr(web, "_application", lambda: None)
    monkeypatch.setattr(web, "start_django", lambda: None)
    monkeypatch.setenv("VINERY_SERVER", "uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert web.run(argparse.Namespace(fd=server.detach())) == 0

    assert served == [pytest.approx(0.0005)]


PROXIES = [ip_network("127.0.0.0/8"), ip_network("10.1.0.0/24")]


async def client_of(peer: str, *forwarded: str) -> str:
    """Return the client address that the application receives."""
    seen: dict[str, Any] = {}

    async def application(scope: dict[str, Any], *_: Any) -> None:
        seen.update(scope)

    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    scope = {"type": "http", "client": (peer, 4711), "headers": headers, "scheme": "http"}
    await behind(application, PROXIES)(scope, None, None)
    return str(seen["client"][0])


@table(
    "peer, forwarded, client",
    [
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["203.0.113.9:5555"], "203.0.113.9"),
        ("127.0.0.1", ["[2001:db8::1]:5555"], "2001:db8::1"),
        ("127.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        # Addresses that the client itself sends come before those of the proxies.
        ("127.0.0.1", ["10.1.1.1, 203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["10.1.0.1", "203.0.113.9"], "203.0.113.9"),
        ("10.1.0.7", ["192.0.2.1, 203.0.113.9, 10.1.0.8"], "203.0.113.9"),
        # Only proxies are trusted.
        ("203.0.113.9", ["10.1.0.1"], "203.0.113.9"),
    ],
)
async def test_the_client_is_the_last_address_that_is_not_a_proxy(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert await client_of(peer, *forwarded) == client
