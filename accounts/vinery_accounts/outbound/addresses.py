"""IP addresses and networks, and which addresses belong to ordinary public hosts.

The special networks are multicast and IANA's registries of special-purpose addresses. Some
addresses are called global there without being ordinary hosts: 192.0.0.192 is the metadata service
of a cloud. A network-specific prefix of NAT64 (RFC 6052) cannot be recognised.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
# A network's gateway translates these to IPv4, also to private addresses (RFC 6052).
_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# ISATAP's interface identifiers, with an IPv4 address in the last 32 bits (RFC 5214).
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})

# By the registries: private, shared, loopback, link-local, for documents and benchmarks, relays of
# 6to4, Teredo, IPv4 addresses in IPv6, multicast and reserved ones.
_SPECIAL: Final[tuple[Network, ...]] = tuple(
    ip_network(each)
    for each in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32"),
        *("169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
        *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/23", "2001:db8::/32"),
        *("2620:4f:8000::/48", "3fff::/20", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)

# Of all clouds, by their documents: 169.254.169.254 and others in the link-local networks, Azure's,
# Oracle's, Alibaba's, Amazon's, Google's and Scaleway's.
_METADATA_NETWORKS: Final = tuple(
    ip_network(each)
    for each in (
        *("169.254.0.0/16", "fe80::/10", "168.63.129.16/32", "192.0.0.192/32"),
        *("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128"),
    )
)


class AddressRefused(Exception):
    """The policy of the caller does not allow the address. The message names the reason."""


def read_address(text: str) -> Address | None:
    """The address; None for any other text. An IPv4-mapped address, as IPv6 sockets report it,
    becomes IPv4."""
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks. IPv4-mapped networks, such as ::ffff:10.0.0.0/104, become IPv4. Raises
    ValueError with the text that is not a network."""
    return tuple(_unmapped(ip_network(text.strip())) for text in texts)


@lru_cache(maxsize=1024)
def known_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """See `read_networks`. For texts that come again with each request."""
    return read_networks(texts)


def _unmapped(network: Network) -> Network:
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = network.network_address.ipv4_mapped
        assert mapped is not None
        return IPv4Network((mapped, network.prefixlen - _MAPPED.prefixlen))
    return network


def is_within(address: str, networks: Iterable[Network]) -> bool:
    ip = read_address(address.partition("%")[0])
    return ip is not None and any(
        ip.version == network.version and ip in network for network in networks
    )


def check_address(address: str, networks: Iterable[Network]) -> None:
    """Raises `AddressRefused` for an address that is neither public nor in one of these networks,
    and for the metadata service of a cloud, in whichever network."""
    ip = ip_address(address.partition("%")[0])
    inner = _translated(ip) if isinstance(ip, IPv6Address) else None
    if is_within(str(inner or ip), _METADATA_NETWORKS):
        raise AddressRefused(f"{address} is the metadata service of a cloud.")
    if not is_within(address, networks) and not is_public(address, allows_translated=True):
        raise AddressRefused(f"{address} is not public.")


def is_public(address: str, *, allows_translated: bool = False) -> bool:
    """Whether the address belongs to an ordinary public host. `allows_translated`: an IPv4-mapped,
    NAT64 or 6to4 address is as public as the IPv4 address inside it. A network without IPv4 reaches
    all IPv4 hosts by NAT64."""
    ip = ip_address(address.partition("%")[0])
    inner = _translated(ip) if isinstance(ip, IPv6Address) else None
    return _is_ordinary(ip) if inner is None else allows_translated and _is_ordinary(inner)


def _translated(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address inside an IPv4-mapped, NAT64, 6to4 or ISATAP address."""
    if (inner := ip.ipv4_mapped or ip.sixtofour) is not None:
        return inner
    is_isatap = (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP and ip in _GLOBAL_UNICAST
    return IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 or is_isatap else None


def _is_ordinary(ip: Address) -> bool:
    if any(ip.version == network.version and ip in network for network in _SPECIAL):
        return False
    # `is_global` differs between patch releases of Python.
    return ip.is_global and (ip.version == 4 or ip in _GLOBAL_UNICAST)
