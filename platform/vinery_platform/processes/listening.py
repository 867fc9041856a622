"""The listening socket of the server, which the supervisor binds and every web worker inherits.

So connections wait in the socket's queue while a worker restarts.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from vinery_accounts.outbound.addresses import read_address
from vinery_platform.config import env
from vinery_platform.config.env import SettingError

# How many connections may wait while all workers are busy or restarting.
BACKLOG = 2048

_IPV4 = socket.AF_INET


@dataclass(frozen=True, slots=True)
class Address:
    """The address on which the server listens. Port 0 lets the system choose a port."""

    host: str
    port: int

    @classmethod
    def from_env(cls) -> Address:
        """VINERY_HOST and VINERY_PORT. Raises `SettingError` for a port out of range."""
        return cls(env.text("VINERY_HOST", "127.0.0.1").strip("[]"), env.integer("VINERY_PORT"))

    @classmethod
    def of_relay(cls) -> Address | None:
        """VINERY_HOST_ADDRESS; None without one. Raises `SettingError`."""
        text = env.text("VINERY_HOST_ADDRESS")
        return cls.parse(text, "VINERY_HOST_ADDRESS") if text else None

    @classmethod
    def parse(cls, text: str, name: str) -> Address:
        """Read host:port. `name` for the message. Raises `SettingError`."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise SettingError(f"{name}={text} is no address. Write host:port.")
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        ip = read_address(self.host)
        return self.host == "localhost" or (ip is not None and ip.is_loopback)

    @property
    def is_wildcard(self) -> bool:
        ip = read_address(self.host)
        return ip is not None and ip.is_unspecified

    @property
    def base_url(self) -> str:
        """The root URL for clients on this machine, without a last slash."""
        host = self.host
        if self.is_wildcard:
            host = "::1" if ":" in host else "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def server_for(sock: socket.socket) -> str:
    """The ASGI server in VINERY_SERVER. Raises `SettingError` if it cannot serve this socket."""
    server = env.choice("VINERY_SERVER")
    if server == "daphne" and sock.family != _IPV4:
        raise SettingError("Daphne serves IPv4 only. Set VINERY_HOST to an IPv4 address.")
    return server


def listen(
    address: Address, of_host: str = "VINERY_HOST", of_port: str = "VINERY_PORT"
) -> socket.socket:
    """A listening socket. Its address is in the settings `of_host` and `of_port`. Raises
    `SettingError` if the address cannot be used."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # IPv4, if a name has both.
        family, *_, sockaddr = min(found, key=lambda entry: entry[0] != _IPV4)
        is_dual = family != _IPV4 and socket.has_dualstack_ipv6()
        server = socket.create_server(
            sockaddr, family=family, backlog=BACKLOG, dualstack_ipv6=is_dual
        )
    except OSError as error:
        raise _refusal(address, error, of_host, of_port) from error
    server.setblocking(False)
    return server


def _refusal(address: Address, error: OSError, of_host: str, of_port: str) -> SettingError:
    host, port = address.host, address.port
    if isinstance(error, socket.gaierror):
        return SettingError(f"{of_host}={host} is unknown. Set it to an address of this machine.")
    texts = {
        errno.EADDRINUSE: f"Port {port} on {host} is in use. Set {of_port} to a free one.",
        errno.EADDRNOTAVAIL: f"{of_host}={host} is not an address of this machine.",
        errno.EACCES: f"Port {port} needs more rights. Set {of_port} to 1024 or more.",
    }
    other = f"Cannot listen on {host} port {port}: {error.strerror or error}."
    return SettingError(texts.get(error.errno or 0, other))
