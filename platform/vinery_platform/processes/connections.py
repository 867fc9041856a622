"""The open connections of one web process: how many there may be, and how long each may wait.

All states of a connection but a running request have a deadline. Connections in a state have the
same time, so a state is a queue in the order of deadlines, and a request costs no timer.
"""

import asyncio
import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv6Address, ip_network
from typing import Final, Protocol

from vinery_accounts.outbound.addresses import Network, is_within, read_address
from vinery_platform.processes.listening import BACKLOG
from vinery_serving.gateway.endpoints.refusals import REFUSALS, Reason, Refusals

# A connection of an unknown client costs at most 64 KiB of memory: the header, the bytes behind the
# header, the unsent bytes, and the objects of a request.
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_HEADER_FIELDS: Final = 100
# Parts of a body and next requests that wait for the application.
MAX_WAITING_BYTES: Final = 4 * 1024
# Of an answer, before the application must wait. Also how large its parts are.
MAX_UNSENT_BYTES: Final = 4 * 1024
# Of a body that the application reads, at once. One in chunks may have a chunk for each byte, which
# takes a thousand times as long.
MAX_READ_BYTES: Final = 64 * 1024
MAX_READ_CHUNKED_BYTES: Final = 8 * 1024
# How much more a client may send after an answer that did not wait for the body's end.
MAX_UNREAD_BYTES: Final = 2**20
# Longer than clients keep idle connections (5 s in httpx, 60 s in most proxies). Otherwise a client
# may send a request on a connection that the server is closing.
KEEP_ALIVE_S: Final = 75.0
_HEADER_TIMEOUT_S: Final = 10.0
_SWEEP_INTERVAL_S: Final = 1.0
# Files, sockets of engines and databases need descriptors, too.
_RESERVED_DESCRIPTORS: Final = 200
# A connection that has waited this long makes room for a new one.
_MAY_BE_REPLACED_AFTER_S: Final = 0.5
_TEXTS: Final = {
    Reason.CONNECTIONS: (503, "The server has too many connections."),
    Reason.ADDRESS: (503, "Your address has too many connections."),
    Reason.HEADER_TIMEOUT: (408, "The headers of the request did not arrive in time."),
    Reason.HEADERS_TOO_LARGE: (
        431,
        f"The request line and the headers may have {MAX_HEADER_BYTES // 1024} KiB and "
        f"{MAX_HEADER_FIELDS} fields. Send fewer or shorter ones.",
    ),
    Reason.PIPELINED: (
        429,
        "Too much was sent before the answer. Wait for each answer, or use more connections.",
    ),
}
_MALFORMED: Final = (400, "This is no request of HTTP/1.1 with one `Host` header, or of HTTP/1.0.")


class Connection(Protocol):
    def expire(self, reason: Reason) -> None:
        """End the connection, whose deadline has passed."""

    def abort(self) -> None:
        """End the connection at once. Unsent bytes are lost."""


def descriptor_capacity() -> int:
    """How many connections the descriptors of this process permit, whose limit an administrator may
    change (`prlimit`). The server accepts a part of the queue before it can close anything."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 2**20
    return max(soft - _RESERVED_DESCRIPTORS - min(BACKLOG, soft // 8), 16)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`max_connections` None: as many as the descriptors permit."""

    max_connections: int | None = None
    max_per_address: int = 2000
    proxies: tuple[Network, ...] = ()  # without a limit for each address
    header_timeout_s: float = _HEADER_TIMEOUT_S
    keep_alive_s: float = KEEP_ALIVE_S
    sweep_interval_s: float = _SWEEP_INTERVAL_S

    @property
    def capacity(self) -> int:
        permitted = descriptor_capacity()
        return permitted if self.max_connections is None else min(permitted, self.max_connections)


@dataclass(slots=True)
class _Queue:
    """Connections in the order of their deadlines, with the time and reason of each entry."""

    timeout_s: float
    aborts: bool
    is_counted: bool
    entries: OrderedDict[Connection, tuple[float, Reason]] = field(default_factory=OrderedDict)

    def pop_older_than(self, age_s: float, now_s: float) -> tuple[Connection, Reason] | None:
        if not self.entries:
            return None
        connection, (entered_at_s, reason) = next(iter(self.entries.items()))
        if now_s - entered_at_s < age_s:
            return None
        del self.entries[connection]
        return connection, reason


class Connections:
    def __init__(self, limits: ConnectionLimits, refusals: Refusals = REFUSALS) -> None:
        self._limits = limits
        self._refusals = refusals
        self._groups: dict[Connection, str | None] = {}  # None: an address without a limit
        self._nums: Counter[str] = Counter()  # of connections, by group
        self._reading = _Queue(limits.header_timeout_s, aborts=False, is_counted=True)
        self._idle = _Queue(limits.keep_alive_s, aborts=False, is_counted=False)
        self._closing = _Queue(limits.keep_alive_s, aborts=True, is_counted=False)
        self._stalled = _Queue(limits.keep_alive_s, aborts=True, is_counted=True)
        self._queues: dict[Connection, _Queue] = {}  # in which each is
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._groups)

    def open(self, connection: Connection, address: str | None) -> Reason | None:
        """Admit a connection, which owes a header from now on. Returns why it is refused."""
        group = _group(address, self._limits.proxies)
        if group is not None and self._nums[group] >= self._limits.max_per_address:
            return Reason.ADDRESS
        if len(self._groups) >= self._limits.capacity and not self._make_room():
            return Reason.CONNECTIONS
        self._groups[connection] = group
        if group is not None:
            self._nums[group] += 1
        self.owes(connection, Reason.SILENT)
        self._plan_sweep()
        return None

    def close(self, connection: Connection) -> None:
        """The connection has ended. Idempotent."""
        group = self._groups.pop(connection, None)
        if group is not None:
            self._nums[group] -= 1
            if not self._nums[group]:
                del self._nums[group]
        self._leave(connection)

    def owes(self, connection: Connection, reason: Reason) -> None:
        """The client must send something in time: a header, or the rest of an unread body."""
        self._enter(self._reading, connection, reason)

    def runs(self, connection: Connection) -> None:
        """A request runs, which has deadlines of its own."""
        self._leave(connection)

    def idles(self, connection: Connection) -> None:
        self._enter(self._idle, connection, Reason.SILENT)

    def closes(self, connection: Connection) -> None:
        """The last bytes are being sent."""
        if connection not in self._closing.entries:
            self._enter(self._closing, connection, Reason.SILENT)

    def stalls(self, connection: Connection) -> None:
        """The client does not read the answer of the request that runs."""
        self._enter(self._stalled, connection, Reason.ANSWER_UNREAD)

    def reads(self, connection: Connection) -> None:
        if connection in self._stalled.entries:
            self._leave(connection)

    def has_begun(self, connection: Connection) -> bool:
        """Whether a first byte has arrived that has begun the time for a header."""
        entry = self._reading.entries.get(connection)
        return entry is not None and entry[1] is not Reason.SILENT

    def refuse(self, reason: Reason) -> None:
        self._refusals.count(reason)

    def end_overdue(self) -> None:
        now_s = time.monotonic()
        for queue in (self._reading, self._idle, self._closing, self._stalled):
            while (found := queue.pop_older_than(queue.timeout_s, now_s)) is not None:
                connection, reason = found
                if queue.is_counted:
                    self.refuse(reason)
                if queue.aborts:
                    connection.abort()
                else:
                    connection.expire(reason)

    def _enter(self, queue: _Queue, connection: Connection, reason: Reason) -> None:
        if connection in self._groups:
            self._leave(connection)
            self._queues[connection] = queue
            queue.entries[connection] = (time.monotonic(), reason)

    def _leave(self, connection: Connection) -> None:
        queue = self._queues.pop(connection, None)
        if queue is not None:
            queue.entries.pop(connection, None)

    def _make_room(self) -> bool:
        """End the connection that has waited longest without a request, if there is one."""
        now_s = time.monotonic()
        for queue in (self._reading, self._closing, self._idle):
            found = queue.pop_older_than(_MAY_BE_REPLACED_AFTER_S, now_s)
            if found is not None:
                self.refuse(Reason.CONNECTIONS)
                self.close(found[0])
                found[0].abort()
                return True
        return False

    def _plan_sweep(self) -> None:
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self._limits.sweep_interval_s, self._sweep_now)

    def _sweep_now(self) -> None:
        self._sweep = None
        self.end_overdue()
        if self._groups:
            self._plan_sweep()


@lru_cache(maxsize=4096)
def _group(address: str | None, proxies: Iterable[Network]) -> str | None:
    """The addresses that are counted together: one of IPv4, a client's network of IPv6. None for a
    proxy, behind which many clients are, and for an address that is not one of IP."""
    ip = read_address((address or "").partition("%")[0])
    if ip is None or is_within(str(ip), proxies):
        return None
    return str(ip_network(f"{ip}/64", strict=False) if isinstance(ip, IPv6Address) else ip)


def answer_for(reason: Reason) -> bytes:
    """The answer to a request that no application sees. The connection then ends."""
    status, text = _TEXTS.get(reason, _MALFORMED)
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: text/plain; charset=utf-8",
    ]
    if status == 503:
        lines.append("retry-after: 1")
    lines += [f"content-length: {len(text)}", "connection: close", "", text]
    return "\r\n".join(lines).encode()
