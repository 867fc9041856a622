"""Addresses of ordinary public hosts, and all others."""

from ipaddress import IPv4Address

import pytest

from tests.outbound.attacks import FORBIDDEN_IPV4, FORBIDDEN_IPV6, plain
from tests.tables import table
from vinery_accounts.outbound.addresses import (
    AddressRefused,
    check_address,
    is_public,
    is_within,
    read_networks,
)

PUBLIC = (
    *("8.8.8.8", "192.0.1.1", "192.89.0.1", "223.255.255.255", "2606:4700::1111", "2a00::1"),
    *("2001:200::1", "2620:4f:8001::1", "3ffe::1"),
)
# Some releases of Python call some of these addresses global.
MORE_FORBIDDEN = (
    *("192.88.99.1", "192.0.0.9", "192.31.196.1", "192.52.193.1", "192.175.48.1", "feff::1"),
    *("64:ff9b:1::1", "100:0:0:1::1", "::8.8.8.8", "2001:0:4136:e378:8000:63bf:f7f7:f7f7"),
)
TRANSLATED = ("::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::1", "2606:4700::5efe:a00:1")


def test_no_forbidden_address_is_public_in_any_form() -> None:
    hosts = [host.strip("[]").rstrip(".") for ip in FORBIDDEN_IPV4 for host in plain(ip)]
    for address in (*hosts, *FORBIDDEN_IPV6, *MORE_FORBIDDEN, *TRANSLATED):
        assert not is_public(address), address
        assert not is_public(address, allows_translated=True), address


METADATA = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192")
METADATA_IPV6 = ("fe80::a9fe:a9fe", "fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42")


def test_no_network_that_is_named_opens_the_metadata_service_of_a_cloud() -> None:
    everywhere = read_networks(["0.0.0.0/0", "::/0"])
    check_address("10.0.0.1", everywhere)
    check_address("8.8.8.8", ())
    check_address("64:ff9b::808:808", ())
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1 is not public"):
        check_address("10.0.0.1", ())
    forms = [
        form.strip("[]")
        for ip in map(IPv4Address, METADATA)
        for form in plain(ip)
        if form.startswith(("[::ffff:", "[64:ff9b::", "[2002:", "[2606:")) and ":0:" not in form
    ]
    assert len(forms) == 5 * len(METADATA)
    for address in (*METADATA, *METADATA_IPV6, *forms):
        with pytest.raises(AddressRefused, match="metadata service of a cloud"):
            check_address(address, everywhere)


def test_an_ordinary_host_is_public_and_a_translated_one_where_it_is_allowed() -> None:
    for address in PUBLIC:
        assert is_public(address), address
    for address in ("::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"):
        assert not is_public(address), address
        assert is_public(address, allows_translated=True), address


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
        ("fe80::/10", "fe80::1%eth0", "fc00::1%eth0"),
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
