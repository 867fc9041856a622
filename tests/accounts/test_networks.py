"""Networks from which a key may be used, for IPv4 and IPv6."""

import pytest

from tests.tables import table
from vinery_accounts.outbound.addresses import is_within, read_networks


@table(
    "network, inside, outside",
    [
        ("10.0.0.0/8", "10.1.2.3", "11.0.0.1"),
        ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.0.0.1"),
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("2001:db8::/32", "2001:db8::1", "2001:db9::1"),
        ("::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.1"),
        ("::ffff:10.0.0.1/128", "::ffff:10.0.0.1", "10.0.0.2"),
        ("::ffff:0:0/96", "10.1.2.3", "2001:db8::1"),
        ("0.0.0.0/0", "10.1.2.3", "2001:db8::1"),
        ("::/0", "2001:db8::1", "10.1.2.3"),
        (" 10.0.0.0/8 ", "10.0.0.0", "no address"),
    ],
)
def test_an_address_is_matched_with_the_networks(network: str, inside: str, outside: str) -> None:
    networks = read_networks([network])

    assert is_within(inside, networks)
    assert not is_within(outside, networks)


@table("text", ["10.0.0.1/8", "10.0.0.0/33", "the office", "", "fe80::1%eth0/64"])
def test_an_invalid_network_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text or "''"):
        read_networks([text])
