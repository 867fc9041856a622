"""No URL of a webhook reaches an address that is not public, whatever its notation.

The checks at creation are left out here: a row that is in the table already is sent to, too.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.outbound.attacks import ATTACKS, FORBIDDEN_IPV4, FORBIDDEN_IPV6, NAMES
from tests.outbound.recording import RecordedNetwork
from vinery_accounts.alerts import webhooks
from vinery_accounts.alerts.webhooks import NotDelivered
from vinery_accounts.outbound.addresses import read_networks


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Connections to its port, on any address of this machine, wait to be accepted."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.setblocking(False)
        yield server


def send(monkeypatch: pytest.MonkeyPatch, network: RecordedNetwork, url: str) -> None:
    monkeypatch.setattr(webhooks, "CLIENT", network.client())
    webhooks.send(webhooks.make("ours", url)[0], webhooks.test_event())


# With a permitted network, http:// is taken, too.
@pytest.mark.parametrize("permitted", [(), ("203.0.113.0/24",)])
def test_no_attack_reaches_an_address(
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    listening: socket.socket,
    permitted: tuple[str, ...],
) -> None:
    settings.VINERY_WEBHOOK_NETWORKS = read_networks(permitted)
    network = RecordedNetwork()
    port = str(listening.getsockname()[1])
    attacks = [*ATTACKS, *(f"http://{name}:{{port}}/" for name in NAMES)]
    attacks += [each.replace("http:", "https:", 1) for each in attacks]

    for attack in attacks:
        with pytest.raises(NotDelivered):
            send(monkeypatch, network, attack.replace("{port}", port))

    assert len(attacks) >= 600
    assert network.connected == []
    with pytest.raises(BlockingIOError):
        listening.accept()


def test_a_name_that_changes_its_answer_is_checked_at_each_delivery(
    monkeypatch: pytest.MonkeyPatch, settings: Any, listening: socket.socket
) -> None:
    """The permitted address at the first delivery, a forbidden one at the second."""
    settings.VINERY_WEBHOOK_NETWORKS = read_networks(["127.0.0.1/32"])
    for forbidden in (*map(str, FORBIDDEN_IPV4[1:]), *FORBIDDEN_IPV6):
        network = RecordedNetwork(names={"a.example": [["192.0.2.7"], [forbidden]]})
        for _ in range(2):
            with pytest.raises(NotDelivered, match=r"not public|not allowed"):
                send(monkeypatch, network, f"https://a.example:{listening.getsockname()[1]}/")
        assert network.connected == []


def test_a_permitted_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, settings: Any, listening: socket.socket
) -> None:
    settings.VINERY_WEBHOOK_NETWORKS = read_networks(["127.0.0.1/32"])
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.1)
    network = RecordedNetwork()

    with pytest.raises(NotDelivered, match="No answer"):
        send(monkeypatch, network, f"http://127.0.0.1:{listening.getsockname()[1]}/")
    assert network.connected == ["127.0.0.1"]
    listening.accept()[0].close()
