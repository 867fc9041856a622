"""IP networks: where a key may be used from, and where webhooks may be sent.

Webhooks go to the public internet over TLS. Other addresses, such as databases and a cloud's
metadata service, need the administrator's permission (`VINERY_WEBHOOK_NETWORKS`). So a host name is
resolved once, all its addresses are checked, and the connection goes to one of these.
"""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

Network = IPv4Network | IPv6Network

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_PORTS: Final = {"https": 443, "http": 80}
# A network's gateway translates these to IPv4, also to private addresses (RFC 6052).
_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# IANA's registries of special-purpose addresses, and multicast. Some are called global there, but
# none is an ordinary host: 192.0.0.192 is the metadata service of a cloud.
_SPECIAL: Final[Mapping[int, tuple[Network, ...]]] = {
    4: tuple(
        map(
            IPv4Network,
            (
                *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
                *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
                *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
                *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4"),
                "240.0.0.0/4",
            ),
        )
    ),
    6: tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20"))),
}


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """The address; None for text that is none. An IPv4-mapped address, as IPv6 sockets report it,
    becomes IPv4."""
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip


# -- Networks of keys


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks. IPv4-mapped ones, such as ::ffff:10.0.0.0/104, become IPv4.

    Raises ValueError that names the text which is not a network.
    """
    return tuple(_unmapped(ip_network(text.strip())) for text in texts)


def _unmapped(network: Network) -> Network:
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = network.network_address.ipv4_mapped
        assert mapped is not None
        return IPv4Network((mapped, network.prefixlen - _MAPPED.prefixlen))
    return network


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether the address is in one of the networks; False for text that is not an address."""
    ip = read_address(address)
    return ip is not None and any(
        ip.version == network.version and ip in network for network in networks
    )


# -- Addresses of webhooks


class AddressRefused(Exception):
    """A webhook may not be sent there. The message names the reason."""


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL. `path` includes the query."""

    is_tls: bool
    host: str
    port: int
    path: str


def check_url(url: str) -> Target:
    """The parts of a URL that may be used, without a DNS query. Raises `AddressRefused`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise AddressRefused("This is not a URL.") from None
    if parts.scheme not in _PORTS or not host:
        raise AddressRefused("Give a URL that starts with https://.")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused(
            "Leave out the user and the password: the signature identifies the sender."
        )
    if not url.isascii() or any(letter <= " " or letter == "\x7f" for letter in url):
        raise AddressRefused("Write the URL in ASCII, without spaces.")
    if port == 0:
        raise AddressRefused("There is no port 0.")
    if parts.scheme == "http" and not settings.VINERY_WEBHOOK_NETWORKS:
        raise AddressRefused("Use https://: without TLS, others can read and change what is sent.")
    target = Target(
        parts.scheme == "https",
        host,
        port or _PORTS[parts.scheme],
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )
    if read_address(host) is not None:
        check_address(host, is_tls=target.is_tls)
    return target


def resolve(target: Target) -> str:
    """The IP address to connect to. Raises `AddressRefused` if any of the host's is refused."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise AddressRefused(f"There is no host {target.host}.") from None
    addresses = [str(where[0]) for *_, where in found]
    for address in addresses:
        check_address(address, is_tls=target.is_tls)
    return addresses[0]


def check_address(address: str, *, is_tls: bool) -> None:
    """Raises `AddressRefused` for an address that a webhook may not be sent to."""
    if is_within(address.partition("%")[0], settings.VINERY_WEBHOOK_NETWORKS):
        return
    if not is_tls:
        raise AddressRefused(
            "Use https://: the administrator has not allowed http:// to this address."
        )
    if not _is_public(ip_address(address)):
        raise AddressRefused(
            "This address is not public, and the administrator has not allowed it."
        )


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
        if ip not in _GLOBAL_UNICAST:
            return False
    # `is_global` differs between patch releases of Python.
    return ip.is_global and not any(ip in network for network in _SPECIAL[ip.version])
