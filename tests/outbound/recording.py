"""A network that keeps each connection, with the name server of the test."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpcore2

from tests.outbound.servers import Server
from vinery_accounts.outbound.client import Client


@dataclass
class RecordedNetwork(httpcore2.AnyIOBackend):
    """Real connections. Each name has answers in order; the last answer is repeated.

    Other names are resolved as the most lenient name servers do: numbers in each notation of
    `inet_aton`, and every name is this machine.
    """

    names: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    resolved: list[str] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        asked = self.resolved.count(host)
        self.resolved.append(host)
        if host in self.names:
            answers = self.names[host]
            return answers[min(asked, len(answers) - 1)]
        try:
            found = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
        except OSError:
            return ["127.0.0.1", "::1"]
        return [str(address[0]) for *_, address in found]

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **options: Any
    ) -> httpcore2.AsyncNetworkStream:
        self.connected.append(host)
        return await super().connect_tcp(host, port, *args, **options)

    def client(self, tls: ssl.SSLContext | None = None, **limits: float) -> Client:
        context: Callable[[], Any] = lambda: tls  # noqa: E731
        blocking = _RecordedConnections(self.connected)
        return Client(
            resolve=self.resolve, connections=self, blocking=blocking, tls=context, **limits
        )


@dataclass
class _RecordedConnections(httpcore2.SyncBackend):
    connected: list[str]

    def connect_tcp(
        self, host: str, port: int, *args: Any, **options: Any
    ) -> httpcore2.NetworkStream:
        self.connected.append(host)
        return super().connect_tcp(host, port, *args, **options)


@asynccontextmanager
async def listening_everywhere() -> AsyncIterator[Server]:
    """A server on one port of all IPv4 and, if this machine has them, all IPv6 addresses."""
    server = Server()
    async with AsyncExitStack() as stack:
        first = await asyncio.start_server(server.serve, "0.0.0.0", 0)
        stack.callback(first.close)
        server.port = first.sockets[0].getsockname()[1]
        if socket.has_ipv6:
            second = await asyncio.start_server(server.serve, "::", server.port)
            stack.callback(second.close)
        yield server
