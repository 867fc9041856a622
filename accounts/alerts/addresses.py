"""Where webhooks may go: to the public internet over TLS, and elsewhere only where an
administrator of the platform has allowed it (`VINERY_WEBHOOK_NETWORKS`).

Anybody who leads an organisation writes URLs here, and this host sees more than they do:
databases, other tenants, a cloud's metadata. So a name is resolved once, every address that it
has is checked, and the connection is made to a checked address and not to the name.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from accounts.base.networks import is_within

_PORTS: Final = {"https": 443, "http": 80}
# Translated to IPv4 by a network's gateway, whatever the address behind is (RFC 6052).
_NAT64: Final = IPv6Network("64:ff9b::/96")


class Refused(Exception):
    """Nothing is sent there. The message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart. `path` has the query."""

    is_tls: bool
    host: str
    port: int
    path: str


def check_url(url: str) -> Target:
    """What can be told without asking a name server. Raises `Refused`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Refused("This is not a URL.") from None
    if parts.scheme not in _PORTS or not host:
        raise Refused("Give a URL that starts with https://.")
    if parts.username is not None or parts.password is not None:
        raise Refused("Leave out the user and the password: the signature says who calls.")
    if not url.isascii() or any(letter <= " " or letter == "\x7f" for letter in url):
        raise Refused("Write the URL in ASCII, without spaces.")
    if port == 0:
        raise Refused("There is no port 0.")
    if parts.scheme == "http" and not settings.VINERY_WEBHOOK_NETWORKS:
        raise Refused("Use https://: without TLS, anybody on the way reads and changes it.")
    target = Target(
        parts.scheme == "https",
        host,
        port or _PORTS[parts.scheme],
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )
    try:
        ip_address(host)
    except ValueError:
        return target
    check_address(host, is_tls=target.is_tls)
    return target


def resolve(target: Target) -> str:
    """The address to connect to. Raises `Refused`, also where one of several addresses is
    refused: names are not a way to try them all."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Refused(f"There is no host {target.host}.") from None
    addresses = [str(where[0]) for *_, where in found]
    for address in addresses:
        check_address(address, is_tls=target.is_tls)
    return addresses[0]


def check_address(address: str, *, is_tls: bool) -> None:
    """Raises `Refused`."""
    if is_within(address.partition("%")[0], settings.VINERY_WEBHOOK_NETWORKS):
        return
    if not is_tls:
        raise Refused("Use https://: the administrator has not allowed http:// to this address.")
    if not _is_public(ip_address(address)):
        raise Refused("This address is not public, and the administrator has not allowed it.")


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
