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

_PRIVATE: Final = "private"
_LOOPBACK: Final = "loopback"
_LINK_LOCAL: Final = "link-local, where clouds have their metadata service"
_DOCUMENTATION: Final = "reserved for documentation"
_RESERVED: Final = "reserved"
_METADATA: Final = "the metadata service of a cloud"
_SPECIAL: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", _PRIVATE),
        ("100.64.0.0/10", "shared by the customers of a provider"),
        ("127.0.0.0/8", _LOOPBACK),
        ("168.63.129.16/32", _METADATA),  # Azure's, in a public network
        ("169.254.0.0/16", _LINK_LOCAL),
        ("172.16.0.0/12", _PRIVATE),
        ("192.0.0.192/32", _METADATA),  # Oracle's
        ("192.0.0.0/24", _RESERVED),
        ("192.0.2.0/24", _DOCUMENTATION),
        ("192.31.196.0/24", _RESERVED),
        ("192.52.193.0/24", _RESERVED),
        ("192.88.99.0/24", "a relay of 6to4"),
        ("192.168.0.0/16", _PRIVATE),
        ("192.175.48.0/24", _RESERVED),
        ("198.18.0.0/15", "reserved for benchmarks"),
        ("198.51.100.0/24", _DOCUMENTATION),
        ("203.0.113.0/24", _DOCUMENTATION),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", _RESERVED),
        ("::/128", "unspecified"),
        ("::1/128", _LOOPBACK),
        ("::/96", "an IPv4-compatible address"),
        ("::ffff:0:0:0/96", "a translated IPv4 address"),
        ("64:ff9b:1::/48", "an IPv4 address behind a local NAT64 gateway"),
        ("2001::/32", "a Teredo address"),
        ("2001::/23", _RESERVED),
        ("2001:db8::/32", _DOCUMENTATION),
        ("2620:4f:8000::/48", _RESERVED),
        ("3fff::/20", _DOCUMENTATION),
        ("fc00::/7", _PRIVATE),
        ("fe80::/10", _LINK_LOCAL),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
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
    if is_within(str(inner[1] if inner else ip), _METADATA_NETWORKS):
        raise AddressRefused(f"{address} is the metadata service of a cloud.")
    if is_within(address, networks):
        return
    if reason := why_not_public(address, allows_translated=True):
        raise AddressRefused(f"{address} is not public ({reason}).")


def why_not_public(address: str, *, allows_translated: bool = False) -> str | None:
    """The reason why the address belongs to no ordinary public host; None for a public host.
    `allows_translated`: an IPv4-mapped, NAT64 or 6to4 address is as public as the IPv4 address
    inside it. A network without IPv4 reaches all IPv4 hosts by NAT64."""
    ip = ip_address(address.partition("%")[0])
    translated = _translated(ip) if isinstance(ip, IPv6Address) else None
    if translated is None:
        return _special_kind(ip)
    kind, inner = translated
    if allows_translated:
        return _special_kind(inner)
    return f"{kind} of {inner}"


def _translated(ip: IPv6Address) -> tuple[str, IPv4Address] | None:
    """The notation of an IPv4 address inside this address, and the IPv4 address."""
    if ip.ipv4_mapped is not None:
        return "the IPv4-mapped address", ip.ipv4_mapped
    if ip in _NAT64:
        return "the NAT64 address", _last_32_bits(ip)
    if ip.sixtofour is not None:
        return "a 6to4 address", ip.sixtofour
    if (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP and ip in _GLOBAL_UNICAST:
        return "an ISATAP address", _last_32_bits(ip)
    return None


def _last_32_bits(ip: IPv6Address) -> IPv4Address:
    return IPv4Address(int(ip) & 0xFFFFFFFF)


def _special_kind(ip: Address) -> str | None:
    for network, kind in _SPECIAL:
        if ip.version == network.version and ip in network:
            return kind
    # `is_global` differs between patch releases of Python.
    is_unicast = ip.version == 4 or ip in _GLOBAL_UNICAST
    return None if is_unicast and ip.is_global else _RESERVED
