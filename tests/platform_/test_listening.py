"""The listening socket refuses a port that another process uses."""

import socket

import pytest

from tests.tables import table
from vinery.config.env import SettingError
from vinery.process.listening import Address, listen, server_for, server_from_env


def test_a_port_in_use_is_refused_and_named_and_free_again_at_once() -> None:
    with listen(Address("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(server.getsockname(), timeout=5)

        with pytest.raises(SettingError, match=f"Port {port} on 127.0.0.1 is in use.*VINERY_PORT"):
            listen(Address("127.0.0.1", port))
    client.close()

    listen(Address("127.0.0.1", port)).close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_this_machine_is_refused(host: str) -> None:
    with pytest.raises(SettingError, match=f"VINERY_HOST={host}"):
        listen(Address(host, 0))


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
def test_clients_on_this_machine_get_a_url_that_they_can_reach(
    host: str, is_loopback: bool, base_url: str
) -> None:
    address = Address(host, 80)

    assert address.is_loopback is is_loopback
    assert address.base_url == base_url


def test_an_unknown_server_is_refused_and_daphne_for_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    for server in ("uvicorn", "daphne"):
        monkeypatch.setenv("VINERY_SERVER", server)
        with socket.socket(socket.AF_INET) as sock:
            assert server_for(sock) == server
    with (
        socket.socket(socket.AF_INET6) as sock,
        pytest.raises(SettingError, match="Daphne serves IPv4 only"),
    ):
        server_for(sock)

    monkeypatch.setenv("VINERY_SERVER", "hypercorn")
    with pytest.raises(SettingError, match=r"VINERY_SERVER='hypercorn'.*daphne or uvicorn"):
        server_from_env()
