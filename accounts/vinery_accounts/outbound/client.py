"""Sends one HTTP request to an address that was checked, and reads the response up to a limit.

    route = await client.route(url, check)          # one DNS query; all addresses are checked
    async with client.exchange(route) as response:  # connects to one of these addresses
        body = await response.read(max_bytes)

The name is not resolved a second time; TLS and the header `Host` have the name. No proxy of the
environment, no cookie, no credential and no `Referer` is used, no redirect is followed, and no
connection is kept: a later request may have another policy. The caller sets the total deadline with
`asyncio.timeout`.
"""

import asyncio
import functools
import socket
import ssl
import threading
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

import httpcore2

from vinery_accounts.outbound.addresses import read_address
from vinery_accounts.outbound.urls import Url

Result = TypeVar("Result")
Check = Callable[[str], None]
"""Raises `AddressRefused` for an address that may not be connected to."""

_MAX_LOOKUPS: Final = 32
_MAX_LOOKUPS_OF_OWNER: Final = 8
_TRY_AGAIN_S: Final = 0.05
_MAX_TRIES: Final = 100
_MAX_ADDRESSES: Final = 8  # that are tried
_YIELD_AFTER_PARTS: Final = 64
# A head without end costs the event loop as much as its parser needs for one read.
_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_READ_BYTES: Final = 16 * 1024


class ExchangeFailed(Exception):
    """The other server did not answer correctly. The message contains nothing from that server."""


class NotReached(ExchangeFailed):
    """The name has no address, or no connection could be made."""


class BadResponse(ExchangeFailed):
    """The server broke the protocol, or ended the connection before the end of the body."""


class TooLarge(ExchangeFailed):
    """The body has more bytes than the caller takes."""


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """The addresses of a host, in the order of the system. Raises `NotReached`."""
    query = functools.partial(
        socket.getaddrinfo, host.encode("ascii"), port, type=socket.SOCK_STREAM
    )
    for _ in range(_MAX_TRIES):
        try:
            found = await _lookups.call(query, _owner.get())
        except ThreadsBusy:
            await asyncio.sleep(_TRY_AGAIN_S)
        except (OSError, UnicodeError):
            raise NotReached(f"There is no host {host}.") from None
        else:
            return tuple(dict.fromkeys(str(address[0]) for *_, address in found))
    raise NotReached("Too many names are being resolved; try again shortly.")


@contextmanager
def lookups_of(owner: Hashable) -> Iterator[None]:
    """Count DNS queries inside for this owner, who has a share of the threads: a query goes on
    after its caller's deadline, for as long as the name servers of the host like."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


@functools.cache
def tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True)
class Route:
    url: Url
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Response:
    """The beginning of a response. `headers` has lower-case names; equal ones are joined."""

    status: int
    headers: Mapping[str, str]
    _parts: AsyncIterator[bytes]

    async def read(self, max_bytes: int) -> bytes:
        """The body. Raises `TooLarge`, and `BadResponse` also for a body that is encoded."""
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding not in ("", "identity"):
            raise BadResponse("The server compressed the file, although it was asked not to.")
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > max_bytes:
            raise _too_large(max_bytes)
        body, num_parts = bytearray(), 0
        async for part in self._parts:
            body += part
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
            num_parts += 1
            if num_parts % _YIELD_AFTER_PARTS == 0:
                # Parts of one byte come by the thousand without a wait between them.
                await asyncio.sleep(0)
        return bytes(body)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The file has more than {max_bytes} bytes.")


@dataclass(frozen=True, slots=True)
class Client:
    """`resolve`, `connections`, `blocking` and `tls` are replaced by tests."""

    connect_s: float = 5.0  # for each address, and for the TLS handshake
    read_s: float = 10.0  # between two parts of the response
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] = resolve
    connections: httpcore2.AsyncNetworkBackend = field(default_factory=httpcore2.AnyIOBackend)
    blocking: httpcore2.NetworkBackend = field(default_factory=httpcore2.SyncBackend)
    tls: Callable[[], ssl.SSLContext] = tls_context

    async def route(self, url: Url, check: Check) -> Route:
        """Raises `NotReached`, and `AddressRefused` if any address of the host is refused."""
        is_address = read_address(url.host) is not None
        found = (url.host,) if is_address else await self.resolve(url.host, url.port)
        if not found:
            raise NotReached(f"There is no host {url.host}.")
        for address in found:
            check(address)
        return Route(url, tuple(found))

    @asynccontextmanager
    async def exchange(
        self,
        route: Route,
        *,
        method: str = "GET",
        headers: Mapping[str, str] = MappingProxyType({}),
        body: bytes = b"",
    ) -> AsyncIterator[Response]:
        """Yield the beginning of the response. Raises `NotReached` and `BadResponse`."""
        request = self._request(route.url, method, headers, body)
        with _explained(route.url):
            stream = _BoundedStream(await self._connect(route))
            opened = httpcore2.AsyncHTTP11Connection(request.url.origin, stream)
            async with aclosing(opened) as connection:
                response = await connection.handle_async_request(request)
                stream.is_in_head = False
                async with aclosing(response.aiter_stream()) as parts:
                    yield Response(response.status, _read_headers(response.headers), parts)

    @contextmanager
    def exchange_blocking(
        self, route: Route, headers: Mapping[str, str]
    ) -> Iterator[httpcore2.Response]:
        """As `exchange` with GET, for large files and a thread without an event loop, which reads
        several times as fast."""
        request = self._request(route.url, "GET", headers)
        with _explained(route.url):
            stream = self._connect_blocking(route)
            with closing(httpcore2.HTTP11Connection(request.url.origin, stream)) as connection:
                yield connection.handle_request(request)

    def _request(
        self, url: Url, method: str, headers: Mapping[str, str], body: bytes = b""
    ) -> httpcore2.Request:
        return httpcore2.Request(
            method,
            httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
            headers=[
                ("host", url.authority),
                ("user-agent", "Vinery"),
                ("accept-encoding", "identity"),
                ("connection", "close"),
                *headers.items(),
                *([("content-length", str(len(body)))] if body else []),
            ],
            content=body,
            extensions={"timeout": {"read": self.read_s, "write": self.read_s}},
        )

    async def _connect(self, route: Route) -> httpcore2.AsyncNetworkStream:
        """Over the first successful connection. Raises httpcore's error of the last attempt."""
        port, timeout = route.url.port, self.connect_s
        *others, last = route.addresses[:_MAX_ADDRESSES]
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                stream = await self.connections.connect_tcp(address, port, timeout)
                break
        else:
            stream = await self.connections.connect_tcp(last, port, timeout)
        return await stream.start_tls(*self._tls_of(route)) if route.url.is_tls else stream

    def _connect_blocking(self, route: Route) -> httpcore2.NetworkStream:
        port, timeout = route.url.port, self.connect_s
        *others, last = route.addresses[:_MAX_ADDRESSES]
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                stream = self.blocking.connect_tcp(address, port, timeout)
                break
        else:
            stream = self.blocking.connect_tcp(last, port, timeout)
        return stream.start_tls(*self._tls_of(route)) if route.url.is_tls else stream

    def _tls_of(self, route: Route) -> tuple[ssl.SSLContext, str, float]:
        context = self.tls()
        context.set_alpn_protocols(["http/1.1"])
        return context, route.url.host, self.connect_s


def _read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


class _BoundedStream(httpcore2.AsyncNetworkStream):
    """Reads a little at a time, so that other tasks run between, and bounds all bytes before the
    body: the headers, also of interim responses (status 100)."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._num_bytes = 0
        self.is_in_head = True

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(min(max_bytes, _MAX_READ_BYTES), timeout)
        self._num_bytes += len(data)
        if self.is_in_head and self._num_bytes > _MAX_HEAD_BYTES:
            raise httpcore2.RemoteProtocolError("The head of the response is too long.")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextmanager
def _explained(url: Url) -> Iterator[None]:
    try:
        yield
    except httpcore2.ProtocolError as error:
        raise BadResponse(f"{url.host} did not send a complete HTTP response.") from error
    except httpcore2.TimeoutException as error:
        raise NotReached(f"No answer of {url.host} in time: {_cause(error)}.") from error
    # httpcore lets errors of TLS through that come after the handshake.
    except (httpcore2.NetworkError, ssl.SSLError) as error:
        raise NotReached(f"No answer of {url.host}: {_cause(error)}.") from error


def _cause(error: BaseException) -> str:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return type(error).__name__


# -- Threads


class ThreadsBusy(Exception):
    """All threads wait for calls that have not returned."""


class DaemonThreads:
    """Calls that block for as long as another machine likes, such as DNS queries, from an event
    loop. A thread cannot be ended. So the caller stops waiting at its deadline and the thread goes
    on; the number of threads is bounded. A process that ends does not wait for daemon threads, but
    for the threads of an executor."""

    def __init__(self, max_threads: int, max_each: int | None = None) -> None:
        """`max_each`: threads of each owner; None: all."""
        self._max_threads = max_threads
        self._max_each = max_each or max_threads
        self._lock = threading.Lock()
        self._held: Counter[Hashable] = Counter()

    async def call(self, function: Callable[[], Result], owner: Hashable = None) -> Result:
        """The function's result, or its exception. Raises `ThreadsBusy`."""
        with self._lock:
            if self._held.total() >= self._max_threads or self._held[owner] >= self._max_each:
                raise ThreadsBusy
            self._held[owner] += 1
        outcome: Future[Result] = Future()
        outcome.set_running_or_notify_cancel()  # a caller that leaves cannot cancel the call

        def run() -> None:
            try:
                report = functools.partial(outcome.set_result, function())
            except Exception as error:
                report = functools.partial(outcome.set_exception, error)
            finally:
                self._release(owner)
            report()

        threading.Thread(target=run, daemon=True, name="outbound").start()
        return await asyncio.wrap_future(outcome)

    def _release(self, owner: Hashable) -> None:
        with self._lock:
            self._held[owner] -= 1
            self._held += Counter()  # forgets owners without threads


_owner: Final[ContextVar[Hashable]] = ContextVar("lookups_of", default=None)
_lookups: Final = DaemonThreads(_MAX_LOOKUPS, _MAX_LOOKUPS_OF_OWNER)
