"""uvicorn on an inherited socket, with limits on connections and signs of life.

uvicorn and its parser limit neither the size and number of header fields, nor the time of a header,
nor pipelined requests. Here a request's bytes go to the parser in slices that end at the end of the
header, and bytes after a whole request wait until the server has answered this request.

All connections are read into one buffer, each time no more than the connection may still hold. So
the bytes of a client beyond the limit stay in the client's own machine.
"""

import asyncio
import contextlib
import re
import socket
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, cast

import httptools
import uvicorn
from django.conf import settings
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vinery_platform.processes import heartbeats
from vinery_platform.processes.connections import (
    KEEP_ALIVE_S,
    MAX_HEADER_BYTES,
    MAX_HEADER_FIELDS,
    MAX_READ_BYTES,
    MAX_READ_CHUNKED_BYTES,
    MAX_UNREAD_BYTES,
    MAX_UNSENT_BYTES,
    MAX_WAITING_BYTES,
    ConnectionLimits,
    Connections,
    answer_for,
)
from vinery_platform.processes.heartbeats import CLOSE_WITHIN_S, LAST_REQUESTS_S
from vinery_platform.processes.listening import BACKLOG
from vinery_platform.processes.loop_watch import loop_watch
from vinery_serving.gateway.endpoints.refusals import Reason
from vinery_serving.gateway.state.drain import Drain
from vinery_serving.processes.upkeep import until_next

_POLL_S = 0.1
# Answers have the date to the second.
_DATE_INTERVAL_S = 1.0
_CLOSE = (b"connection", b"close")
_SLICE_BYTES: Final = 16 * 1024
_HEADER_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ?(\d{1,5})\r\n", re.IGNORECASE)
# The last bytes that the event loop has read. The loop reads one connection at a time.
_BUFFER: Final = memoryview(bytearray(MAX_READ_BYTES))


class LimitedProtocol(HttpToolsProtocol):
    """One connection. `limited_by` sets `table` and `outbox` for all connections of a server."""

    table: Connections
    outbox: "_Outbox"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._is_in_message = self._is_in_body = False
        self._num_body_bytes = 0  # the rest by `Content-Length`
        self._num_given_bytes = 0  # of a body, to the application
        self._num_unread_bytes = 0  # of a body, after the answer to its request
        # Given to the parser, which has not reported a header's end or a part of a body since.
        self._num_unreported_bytes = 0
        self._has_reported = False
        self._last_bytes = b""  # of these
        self._held = b""  # what follows the request that runs
        self._refusal: Reason | None = None
        guarded = _OpenTransport(cast("asyncio.Transport", transport), self)
        guarded.set_write_buffer_limits(MAX_UNSENT_BYTES)
        super().connection_made(cast("asyncio.Transport", guarded))
        self.headers = []
        refusal = self.table.open(self, self.client[0] if self.client else None)
        if refusal is not None:
            self._refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.close(self)
        self._held = b""
        super().connection_lost(exc)

    # -- The table's calls

    def expire(self, reason: Reason) -> None:
        if reason is Reason.HEADER_TIMEOUT:
            self.transport.write(answer_for(reason))
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    # -- The transport's calls: whether its client reads the answer

    def pause_writing(self) -> None:
        super().pause_writing()
        self.table.stalls(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.table.reads(self)

    # -- Bytes

    def get_buffer(self, _sizehint: int) -> memoryview:
        """The buffer for the event loop: as much as this connection may still hold."""
        if self._is_in_body:
            room = self._body_room
        elif self._held or self._is_answering:
            room = MAX_WAITING_BYTES - len(self._held)
        else:
            room = MAX_HEADER_BYTES + 1 - self._num_unreported_bytes
        return _BUFFER[: max(room, 1)]

    def buffer_updated(self, num_bytes: int) -> None:
        data = bytes(_BUFFER[:num_bytes])
        if self._held or self._is_answering:
            self._hold(data)
            return
        self._feed(data)
        if self._is_in_body and not self.transport.is_closing() and self._body_room <= 0:
            self.flow.pause_reading()

    @property
    def _body_room(self) -> int:
        """How many bytes of the body may still be read before the application takes some: few until
        it has looked at the key."""
        most = MAX_READ_BYTES if self._num_body_bytes else MAX_READ_CHUNKED_BYTES
        if self.cycle.response_complete:
            return most
        num_waiting = len(self.cycle.body)
        is_read = self._num_given_bytes > num_waiting
        return (most if is_read else MAX_WAITING_BYTES) - num_waiting

    @property
    def _is_answering(self) -> bool:
        """Whether a request is complete, and its answer is not."""
        return not self._is_in_message and not (self.cycle is None or self.cycle.response_complete)

    def _feed(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self.transport.is_closing():
            if self._is_answering:
                self._hold(data[start:])
                return
            end = self._end_of_slice(data, start)
            start += self._parse(data if end >= len(data) and not start else data[start:end])
        if self._num_unreported_bytes and not self._is_in_body and not self.table.has_begun(self):
            self.table.owes(self, Reason.HEADER_TIMEOUT)

    def _end_of_slice(self, data: bytes, start: int) -> int:
        """Where a slice ends that contains no more than one request."""
        end = start + _SLICE_BYTES
        if self._is_in_body:
            return min(end, start + self._num_body_bytes) if self._num_body_bytes else end
        if self._num_unreported_bytes:  # of a header whose end the last slice has perhaps begun
            last = self._last_bytes
            found = (last + data[start:end]).find(_HEADER_END)
            return end if found < 0 else start + found + len(_HEADER_END) - len(last)
        found = data.find(_HEADER_END, start, end)
        if found < 0:
            return end
        found += len(_HEADER_END)
        # An ordinary request arrives whole, and is parsed at once.
        length = _LENGTH.search(data, start, found)
        return min(end, found + int(length[1])) if length else found

    def _parse(self, chunk: bytes) -> int:
        """Give bytes to the parser. Returns how many it has taken."""
        self._has_reported = False
        self._num_unreported_bytes += len(chunk)
        try:
            self.parser.feed_data(chunk)
        except httptools.HttpParserUpgrade as upgrade:
            # There are no other protocols here, and the request is answered as it is.
            self._num_unreported_bytes = 0
            return cast("int", upgrade.args[0])
        except httptools.HttpParserError:
            self._refuse(self._refusal or Reason.MALFORMED)
            return len(chunk)
        if self._has_reported:
            self._num_unreported_bytes = 0
        if len(self.headers) > MAX_HEADER_FIELDS or self._num_unreported_bytes > MAX_HEADER_BYTES:
            self._refuse(Reason.HEADERS_TOO_LARGE)
        if self._num_unreported_bytes:
            self._last_bytes = (self._last_bytes + chunk)[1 - len(_HEADER_END) :]
        return len(chunk)

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) >= MAX_WAITING_BYTES:
            self.flow.pause_reading()

    def _refuse(self, reason: Reason) -> None:
        if self.transport.is_closing():
            return
        self._held = b""
        self.table.refuse(reason)
        if self._may_answer:
            self.transport.write(answer_for(reason))
        self.transport.close()

    @property
    def _may_answer(self) -> bool:
        """Whether the request has no answer yet. A second answer would seem to be that of the
        client's next request."""
        if self.cycle is None or not self.cycle.response_started:
            return True
        return self.cycle.response_complete and not self._is_in_body

    # -- The parser's calls

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_message, self._is_in_body = True, False
        self._num_body_bytes = self._num_given_bytes = self._num_unread_bytes = 0

    def on_headers_complete(self) -> None:
        self._check_headers()
        if self.cycle is not None and not self.cycle.response_complete:
            self._fail(Reason.PIPELINED)  # in one slice with the end of a body in chunks
        self._is_in_body = self._has_reported = True
        self.table.runs(self)
        super().on_headers_complete()
        # The request has its own list. A trailer is no header: a proxy has not looked at it.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._has_reported = True
        self._num_body_bytes = max(self._num_body_bytes - len(body), 0)
        self._num_given_bytes += len(body)
        if self.cycle.response_complete:
            self._num_unread_bytes += len(body)
            if self._num_unread_bytes > MAX_UNREAD_BYTES:
                self._fail(Reason.BODY_UNREAD)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._check_size()  # of its trailers
        super().on_message_complete()
        self._is_in_message = self._is_in_body = False
        self._has_reported = True
        if self.cycle.response_complete:
            self.table.idles(self)

    def on_response_complete(self) -> None:
        self.cycle.body.clear()  # what the application has not read
        # Without uvicorn's own timer and its queue of pipelined requests.
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._is_in_message:
            self.table.owes(self, Reason.BODY_UNREAD)
            return
        self.table.idles(self)
        if self._held:
            self.loop.call_soon(self._feed_held)

    def _feed_held(self) -> None:
        held, self._held = self._held, b""
        self._feed(held)

    def _check_headers(self) -> None:
        """Refuse headers that are too large, do not name one host (RFC 9112, 3.2), or encode the
        body other than in chunks."""
        self._check_size()
        version = self.parser.get_http_version()
        num_hosts = 0
        for name, value in self.headers:
            if name == b"host":
                num_hosts += 1
            elif name == b"content-length" and value.isdigit():
                self._num_body_bytes = int(value)
            elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version != "1.1"):
                self._fail(Reason.MALFORMED)
        if num_hosts != 1 and not (version == "1.0" and not num_hosts):
            self._fail(Reason.MALFORMED)
        if version not in ("1.1", "1.0"):
            self._fail(Reason.MALFORMED)

    def _check_size(self) -> None:
        if len(self.headers) > MAX_HEADER_FIELDS or self._num_unreported_bytes > MAX_HEADER_BYTES:
            self._fail(Reason.HEADERS_TOO_LARGE)

    def _fail(self, reason: Reason) -> None:
        """End the parser, which raises `HttpParserCallbackError` for it."""
        self._refusal = reason
        raise ValueError(reason)


class _Outbox:
    """The connections of a server with unsent bytes, which are sent together, once all ready
    callbacks of the event loop have run: each send may wake a client, which takes longer than the
    send, and an awake client finds the bytes that were sent meanwhile."""

    def __init__(self) -> None:
        self._waiting: deque[_OpenTransport] = deque()  # no longer than there are writes in a pass
        self._is_planned = False

    def add(self, transport: "_OpenTransport", loop: asyncio.AbstractEventLoop) -> None:
        self._waiting.append(transport)
        if not self._is_planned:
            self._is_planned = True
            loop.call_soon(self._send_all, loop)

    def _send_all(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_planned = False
        try:
            while self._waiting:
                self._waiting.popleft().send()
        finally:
            if self._waiting and not self._is_planned:  # an error of one is not the others'
                self._is_planned = True
                loop.call_soon(self._send_all, loop)


class _OpenTransport:
    """A transport that sends all writes of one pass of the event loop at once: uvloop would make a
    call into the system for each. Ignores writes after the client has left, for which uvloop raises
    `RuntimeError` until the server has noticed."""

    def __init__(self, transport: asyncio.Transport, protocol: LimitedProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._unsent = b""
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_extra_info = transport.get_extra_info
        self.set_write_buffer_limits = transport.set_write_buffer_limits
        self.abort = transport.abort

    def write(self, data: bytes) -> None:
        if not data or self._transport.is_closing():
            return
        if self._unsent:
            self._unsent += data
        else:
            self._unsent = data
            self._protocol.outbox.add(self, self._protocol.loop)
        if len(self._unsent) > MAX_UNSENT_BYTES:  # the transport then pauses the application
            self.send()

    def send(self) -> None:
        unsent, self._unsent = self._unsent, b""
        if unsent and not self._transport.is_closing():
            self._transport.write(unsent)

    def close(self) -> None:
        """Close when all is sent. The client has a limited time to read it."""
        if not self._transport.is_closing():
            self.send()
            self._protocol.table.closes(self._protocol)
            self._transport.close()


class _Buffered:
    """The event loop reads into a buffer only for protocols that are no `asyncio.Protocol`."""

    def __init__(self, protocol: LimitedProtocol) -> None:
        self.connection_made = protocol.connection_made
        self.connection_lost = protocol.connection_lost
        self.eof_received = protocol.eof_received
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing
        self.get_buffer = protocol.get_buffer
        self.buffer_updated = protocol.buffer_updated


def limited_by(table: Connections) -> type[asyncio.Protocol]:
    """The protocol for one server, whose connections are in this table."""
    limited = type("LimitedProtocol", (LimitedProtocol,), {"table": table, "outbox": _Outbox()})

    def protocol(**options: Any) -> _Buffered:
        return _Buffered(limited(**options))

    return cast("type[asyncio.Protocol]", protocol)


# -- The server


def serve(
    application: Any,
    sock: socket.socket,
    drain: Drain,
    limit_s: Callable[[], float],
    limits: ConnectionLimits | None = None,  # by default those of the settings
) -> None:
    """Serve until SIGTERM. Then requests that run may go on for `limit_s`."""
    table = Connections(
        limits
        or ConnectionLimits(
            max_connections=settings.VINERY_MAX_CONNECTIONS,
            max_per_address=settings.VINERY_MAX_CONNECTIONS_PER_ADDRESS,
            proxies=tuple(settings.VINERY_TRUSTED_PROXIES),
        )
    )
    protocol: type[asyncio.Protocol] = limited_by(table)
    config = uvicorn.Config(
        application,
        loop="uvloop",
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=int(KEEP_ALIVE_S),
        timeout_graceful_shutdown=int(CLOSE_WITHIN_S),
    )
    _WatchedServer(config, drain, limit_s).run(sockets=[sock])


class _WatchedServer(uvicorn.Server):
    """Ends when idle, if the supervisor asks for that: see `heartbeats.END_WHEN_IDLE`."""

    def __init__(self, config: uvicorn.Config, drain: Drain, limit_s: Callable[[], float]) -> None:
        super().__init__(config)
        self._drain = drain
        self._limit_s = limit_s
        self._draining: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._exit: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Wait for the end. Uvicorn itself would poll ten times a second."""
        self._exit = asyncio.get_running_loop().create_future()
        while not await self.on_tick(0):  # which renews the date of answers
            await asyncio.wait([self._exit], timeout=until_next(_DATE_INTERVAL_S))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None:  # it does not serve yet
            super().handle_exit(sig, frame)
            return
        self._captured_signals.append(sig)
        self._drain.begin()
        self._loop.call_soon_threadsafe(self._begin_to_drain)

    def _begin_to_drain(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._end_when_drained(), name="drain")

    async def _end_when_drained(self) -> None:
        await self._close_after_answers()
        await self._drain.finish(self._limit_s())
        self._leave_main_loop()

    async def _close_after_answers(self) -> None:
        """Let each answer close its connection, so no client sends a request on one that is about
        to be closed."""
        if _CLOSE not in self.config.encoded_headers:
            self.config.encoded_headers.append(_CLOSE)
        await self.on_tick(0)

    def _leave_main_loop(self) -> None:
        self.should_exit = True
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        heartbeats.begin_in_loop()
        await super().startup(sockets)
        loop_watch.begin()  # not earlier: no client waits for the start
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(heartbeats.END_WHEN_IDLE, self._begin_to_end)
        heartbeats.report_serving()

    def _begin_to_end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_when_idle(), name="end-when-idle")

    async def _end_when_idle(self) -> None:
        """Take no connection, and end when the last request has. SIGTERM ends it as ever."""
        self._drain.is_replaced = True
        for server in self.servers:
            server.close()
        await self._close_after_answers()
        await asyncio.sleep(LAST_REQUESTS_S)
        for connection in list(self.server_state.connections):
            connection.shutdown()  # at once if idle, else after the answer
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.VINERY_REQUEST_TIMEOUT_S + LAST_REQUESTS_S):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        self._leave_main_loop()
