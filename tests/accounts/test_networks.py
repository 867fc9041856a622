"""Networks from which a key may be used, for IPv4 and IPv6."""

from ipaddress import ip_address

import pytest

from tests.tables import table
from vinery_accounts.models.alerts import check_address
from vinery_accounts.outbound.addresses import AddressRefused, is_within, read_networks


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


@table(
    "address",
    [
        # Global by some releases of Python.
        *("192.0.0.192", "192.88.99.1", "fec0::1", "feff::1", "3fff::1", "2620:4f:8000::1"),
        # The metadata service of a cloud in a public network.
        "168.63.129.16",
        *("192.0.0.9", "192.31.196.1", "192.52.193.1", "192.175.48.1"),
        *("64:ff9b:1::1", "5f00::1", "100:0:0:1::1", "4000::1", "::8.8.8.8", "2001:20::1"),
        # The same in IPv6.
        *("2606:4700::5efe:a00:1", "2001:0:4136:e378:8000:63bf:f7f7:f7f7"),
        *("::ffff:192.0.0.192", "64:ff9b::c000:c0", "2002:c000:c0::1", "::ffff:10.0.0.1"),
        *("10.0.0.1", "100.64.0.1", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::1"),
    ],
)
def test_a_webhook_is_not_sent_to_a_special_address(address: str) -> None:
    with pytest.raises(AddressRefused, match="not public"):
        check_address(address, is_tls=True)


@table(
    "address",
    [
        *("8.8.8.8", "192.0.1.1", "192.89.0.1", "223.255.255.255", "2606:4700::1111"),
        *("2001:200::1", "2620:4f:8001::1", "3ffe::1", "2a00::1", "64:ff9b::808:808"),
        *("::ffff:8.8.8.8", "2002:808:808::1"),
    ],
)
def test_a_webhook_is_sent_to_an_ordinary_address(address: str) -> None:
    assert ip_address(address)
    check_address(address, is_tls=True)
