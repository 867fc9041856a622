"""The client address of a request behind proxies."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from tests.tables import table
from vinery.cli.web import behind

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
