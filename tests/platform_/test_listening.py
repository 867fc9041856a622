"""Connections: their port, how many there may be, how much is read of each and sent when."""

import asyncio
import socket
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests.tables import table
from vinery_platform.config.env import SettingError
from vinery_platform.processes import connections
from vinery_platform.processes.listening import Address, listen, server_for
from vinery_platform.processes.uvicorn_server import LimitedProtocol, _OpenTransport, _Outbox
from vinery_serving.gateway.endpoints.refusals import Reason, Refusals

RELAY = ("VINERY_HOST_ADDRESS", "VINERY_HOST_ADDRESS")


def test_a_host_elsewhere_and_a_port_in_use_are_refused_and_it_is_free_again_at_once() -> None:
    with listen(Address("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(server.getsockname(), timeout=5)

        with pytest.raises(SettingError, match=f"Port {port} on 127.0.0.1 is in use.*VINERY_PORT"):
            listen(Address("127.0.0.1", port))
        with pytest.raises(SettingError, match="Set VINERY_HOST_ADDRESS to a free one"):
            listen(Address("127.0.0.1", port), *RELAY)
    client.close()

    listen(Address("127.0.0.1", port)).close()
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(SettingError, match=f"VINERY_HOST={host}"):
            listen(Address(host, 0))
        with pytest.raises(SettingError, match=f"VINERY_HOST_ADDRESS={host}"):
            listen(Address(host, 0), *RELAY)


@table(
    "host, is_loopback, base_url",
    [
        ("127.0.0.1", True, "http://127.0.0.1:80"),
        ("localhost", True, "http://localhost:80"),
        ("::1", True, "http://[::1]:80"),
        ("0.0.0.0", False, "http://127.0.0.1:80"),
        ("::", False, "http://[::1]:80"),
        ("192.0.2.7", False, "http://192.0.2.7:80"),
    ],
)
def test_local_clients_get_a_reachable_url(host: str, is_loopback: bool, base_url: str) -> None:
    address = Address(host, 80)

    assert address.is_loopback is is_loopback
    assert address.base_url == base_url


def test_daphne_is_refused_for_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    for server in ("uvicorn", "daphne"):
        monkeypatch.setenv("VINERY_SERVER", server)
        with socket.socket(socket.AF_INET) as sock:
            assert server_for(sock) == server
    with (
        socket.socket(socket.AF_INET6) as sock,
        pytest.raises(SettingError, match="Daphne serves IPv4 only"),
    ):
        server_for(sock)


@table(
    "addresses, num_refused",
    [
        (["192.0.2.1"] * 3, 1),
        (["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"], 1),
        (["192.0.2.1", "192.0.2.1", "192.0.2.2"], 0),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], 1),  # one client's network
        (["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"], 0),
        (["10.0.0.1"] * 3, 0),  # a proxy
        ([None] * 3, 0),
    ],
)
async def test_addresses_count_by_client(addresses: list[str | None], num_refused: int) -> None:
    limits = connections.ConnectionLimits(max_per_address=2, proxies=(ip_network("10.0.0.0/8"),))
    table = connections.Connections(limits, Refusals())

    refusals = [table.open(Mock(), address) for address in addresses]

    assert refusals.count(Reason.ADDRESS) == num_refused


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Recording(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True


def open_transport(below: Recording, outbox: _Outbox) -> _OpenTransport:
    table = SimpleNamespace(closes=lambda connection: None)
    protocol = SimpleNamespace(loop=asyncio.get_running_loop(), table=table, outbox=outbox)
    return _OpenTransport(below, cast(LimitedProtocol, protocol))


async def test_what_one_pass_writes_is_sent() -> None:
    below = Recording()
    transport = open_transport(below, _Outbox())
    transport.write(HEAD)
    transport.write(b"body")
    transport.write(b"more")
    assert below.sent == []
    await asyncio.sleep(0)
    assert below.sent == [HEAD + b"bodymore"]

    # A head without a body is sent in the same moment.
    transport.write(HEAD)
    await asyncio.sleep(0)
    transport.write(b"body")
    await asyncio.sleep(0)
    assert below.sent[1:] == [HEAD, b"body"]

    # No more than a part of an answer waits.
    part = b"x" * connections.MAX_UNSENT_BYTES
    transport.write(part)
    transport.write(b"y")
    assert below.sent[3:] == [part + b"y"]

    # An unsent answer is sent before the connection closes.
    transport.write(HEAD)
    transport.close()
    transport.write(b"too late")
    await asyncio.sleep(0)
    assert below.sent[4:] == [HEAD]


async def test_all_connections_send_after_all_that_was_ready_has_run() -> None:
    outbox, done = _Outbox(), list[object]()

    class Noting(Recording):
        def write(self, data: Any) -> None:
            done.append(bytes(data))

    async def answer(number: int) -> None:
        done.append(number)
        open_transport(Noting(), outbox).write(b"%d" % number)

    await asyncio.gather(answer(1), answer(2), answer(3))
    await asyncio.sleep(0)

    assert done == [1, 2, 3, b"1", b"2", b"3"]


async def test_a_connection_that_fails_does_not_hold_up_the_others() -> None:
    below, outbox = Recording(), _Outbox()

    class Failing(Recording):
        def write(self, data: Any) -> None:
            raise RuntimeError("no transport")

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    open_transport(Failing(), outbox).write(b"lost")
    open_transport(below, outbox).write(b"body")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert below.sent == [b"body"]
