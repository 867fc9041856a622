"""Networks from which a key may be used, as people write them."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Network = IPv4Network | IPv6Network

_MAPPED: Final = IPv6Network("::ffff:0:0/96")


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Raises ValueError, whose text names the bad one. IPv4 in the clothes of IPv6, such as
    ::ffff:10.0.0.0/104, is IPv4, as its addresses are below."""
    return tuple(_plain(ip_network(text.strip())) for text in texts)


def _plain(network: Network) -> Network:
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = network.network_address.ipv4_mapped
        assert mapped is not None
        return IPv4Network((mapped, network.prefixlen - _MAPPED.prefixlen))
    return network


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether the address is in one of them. An IPv4 address that a socket of IPv6 tells is
    meant as what it is; text that is no address is nowhere."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return any(ip.version == network.version and ip in network for network in networks)
