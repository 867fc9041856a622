"""Daphne's HTTP with the limits of `uvicorn_protocol`, and with bodies that arrive in parts.

Daphne itself collects a body of any length before it calls the application, which would check its
key and its limit. Here the application begins at the end of the header and reads the body itself.
What Twisted reads, and another server may read otherwise, is refused.

Import this module after `daphne.server`, which installs Twisted's reactor.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.web import http

from vinery_platform.process.connections import (
    MAX_HEADER_BYTES,
    MAX_HEADER_FIELDS,
    MAX_READ_BYTES,
    MAX_READ_CHUNKED_BYTES,
    MAX_UNREAD_BYTES,
    MAX_UNSENT_BYTES,
    MAX_WAITING_BYTES,
    Connections,
    answer_for,
)
from vinery_serving.http.refusals import Reason

# Of a body or a chunk, as uvicorn's parser. Python reads no number of thousands of digits.
_MAX_LENGTH = 2**60
_MAX_LENGTH_DIGITS = 30
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x0c\x0e-\x1f\x7f]")


class LimitedFactory(HTTPFactory):  # type: ignore[misc]
    def __init__(self, server: Any, table: Connections) -> None:
        super().__init__(server)
        self.table = table
        self.timeOut = None  # the table has all deadlines

    def protocol(self) -> "LimitedChannel":
        return LimitedChannel()

    def buildProtocol(self, addr: Any) -> Any:
        channel = super().buildProtocol(addr)
        channel.requestFactory = StreamedRequest
        return channel


class LimitedChannel(http.HTTPChannel):  # type: ignore[misc]
    """One connection."""

    maxHeaders = MAX_HEADER_FIELDS
    totalHeadersSize = MAX_HEADER_BYTES
    MAX_LENGTH = MAX_HEADER_BYTES
    _optimisticEagerReadSize = MAX_WAITING_BYTES  # of next requests
    factory: LimitedFactory

    def __init__(self) -> None:
        super().__init__()
        self._is_refused = self._is_lost = False
        self._is_body_whole = True
        self._answered: Any = None  # the request whose answer did not wait for its body
        self._num_unread_bytes = 0
        self._may_send = asyncio.Event()
        self._may_send.set()

    @property
    def _table(self) -> Connections:
        return self.factory.table

    def connectionMade(self) -> None:
        self.transport.bufferSize = MAX_UNSENT_BYTES  # of one read, too
        super().connectionMade()
        refusal = self._table.open(self, getattr(self.transport.getPeer(), "host", None))
        if refusal is not None:
            self._refuse(refusal)

    def connectionLost(self, reason: Any) -> None:
        self._table.close(self)
        self._is_lost = True
        self._may_send.set()
        if self._answered is not None:
            self.requests.clear()  # Daphne has forgotten it
        super().connectionLost(reason)

    def loseConnection(self) -> Any:
        self._table.closes(self)
        return super().loseConnection()

    # -- The table's calls

    def expire(self, reason: Reason) -> None:
        if reason is Reason.HEADER_TIMEOUT:
            self.transport.write(answer_for(reason))
        self.loseConnection()

    def abort(self) -> None:
        self.transport.abortConnection()

    # -- Bytes

    def dataReceived(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self.line_mode and not self._table.has_begun(self):
            self._table.owes(self, Reason.HEADER_TIMEOUT)
        super().dataReceived(data)
        is_in_line = self.line_mode and not self._busyReceiving  # whose end has not arrived
        if is_in_line and _CONTROLS.search(self._buffer[-len(data) :]):
            self._refuse(Reason.MALFORMED)  # a line feed without a carriage return, or no HTTP

    def lineReceived(self, line: bytes) -> None:
        if line.startswith((b" ", b"\t")) or b"\n" in line:
            self._refuse(Reason.MALFORMED)  # a folded line, or one that others read as two
            return
        super().lineReceived(line)

    def headerReceived(self, line: bytes) -> bool:
        _, _, value = line.partition(b":")
        if _CONTROLS.search(value) or b"\r" in value:
            self._refuse(Reason.MALFORMED)
            return False
        return bool(super().headerReceived(line))

    def _maybeChooseTransferDecoder(self, header: bytes, data: bytes) -> bool:
        """Whether the field states clearly where the body ends, or does not concern that."""
        is_encoding = header == b"Transfer-Encoding"
        is_length = header == b"Content-Length"
        if is_encoding and (data.lower() != b"chunked" or self._version != b"HTTP/1.1"):
            return bool(self._failChooseTransferDecoder())
        if is_length and not _is_length(data):
            return bool(self._failChooseTransferDecoder())
        if not super()._maybeChooseTransferDecoder(header, data):
            return False
        if is_encoding:
            request = self.requests[-1]
            self._transferDecoder = _Chunks(request.handleContentChunk, self._finishRequestBody)
        return True

    def lineLengthExceeded(self, line: bytes) -> None:
        self._refuse(Reason.HEADERS_TOO_LARGE)

    def allHeadersReceived(self) -> None:
        request = self.requests[-1]
        num_hosts = len(request.requestHeaders.getRawHeaders(b"host", []))
        is_old = self._version == b"HTTP/1.0"
        is_known = is_old or self._version == b"HTTP/1.1"
        if not is_known or num_hosts > 1 or not (num_hosts or is_old):
            self._refuse(Reason.MALFORMED)
            return
        self._is_body_whole = False
        self._num_unread_bytes = 0
        self._table.runs(self)
        request.body = BodyQueue(self)
        super().allHeadersReceived()
        request.begin(self._command, self._path, self._version)

    def allContentReceived(self) -> None:
        if self._is_refused:
            return
        self._is_body_whole = True
        self.transport.bufferSize = MAX_UNSENT_BYTES
        super().allContentReceived()
        answered, self._answered = self._answered, None
        if answered is not None:
            self.requestDone(answered)

    def requestDone(self, request: Any) -> None:
        if not self._is_body_whole and self.persistent:
            self._answered = request
            self._table.owes(self, Reason.BODY_UNREAD)
            self.resume_body()
            return
        self._table.idles(self)
        if self._dataBuffer:
            self._table.take_turn(partial(self._go_on_after, request))
        else:
            super().requestDone(request)

    def _go_on_after(self, request: Any) -> None:
        """Read the requests that were sent ahead of this one's answer."""
        if not self._is_lost:
            super().requestDone(request)

    # -- The transport's calls: whether its client reads the answer

    def pauseProducing(self) -> None:
        super().pauseProducing()
        self._may_send.clear()
        self._table.stalls(self)

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self._may_send.set()
        self._table.reads(self)

    async def wait_until_sent(self) -> None:
        """Wait until the client has read most of what was sent, or has left."""
        await self._may_send.wait()

    # -- The body

    def pause_body(self) -> None:
        self._networkProducer.pauseProducing()

    def resume_body(self) -> None:
        """Read more of a body: its application takes it, or has answered."""
        is_chunked = isinstance(self._transferDecoder, _Chunks)
        self.transport.bufferSize = MAX_READ_CHUNKED_BYTES if is_chunked else MAX_READ_BYTES
        self._networkProducer.resumeProducing()

    def ignore_body(self, num_bytes: int) -> None:
        """Count a part of a body whose request has been answered."""
        self._num_unread_bytes += num_bytes
        if self._num_unread_bytes > MAX_UNREAD_BYTES:
            self._refuse(Reason.BODY_UNREAD)

    def send_continue(self) -> None:
        super()._send100Continue()

    def _send100Continue(self) -> None:
        """Not yet: the application may refuse the request without its body."""
        self.requests[-1].body.is_expected = True

    def _respondToBadRequestAndDisconnect(self) -> None:
        is_large = (
            self._receivedHeaderSize > self.totalHeadersSize
            or self._receivedHeaderCount > self.maxHeaders
            or getattr(self._transferDecoder, "state", "") == "TRAILER"  # its only fault
        )
        self._refuse(Reason.HEADERS_TOO_LARGE if is_large else Reason.MALFORMED)

    def _refuse(self, reason: Reason) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._table.refuse(reason)
        if self._answered is None and not any(each.has_started for each in self.requests):
            self.transport.write(answer_for(reason))
        self.loseConnection()


def _is_length(digits: bytes) -> bool:
    is_short = digits.isdigit() and len(digits) <= _MAX_LENGTH_DIGITS
    return is_short and int(digits) <= _MAX_LENGTH


class _Chunks(http._ChunkedTransferDecoder):  # type: ignore[misc]
    """A body in chunks, whose sizes and trailers are limited."""

    length: int

    def __init__(self, feed: Callable[[bytes], None], finish: Callable[[bytes], None]) -> None:
        super().__init__(feed, finish)
        self._maxTrailerHeadersSize = MAX_HEADER_BYTES
        self._num_trailers = 0

    def _dataReceived_CHUNK_LENGTH(self) -> bool:
        is_read = super()._dataReceived_CHUNK_LENGTH()
        if is_read and self.length > _MAX_LENGTH:
            raise http._MalformedChunkedDataError("a chunk is too long")
        return bool(is_read)

    def _dataReceived_TRAILER(self) -> bool:
        is_read = super()._dataReceived_TRAILER()
        self._num_trailers += len(self._trailerHeaders)
        self._trailerHeaders.clear()
        if self._num_trailers > MAX_HEADER_FIELDS:
            raise http._MalformedChunkedDataError("too many trailers")
        return bool(is_read)


class StreamedRequest(WebRequest):  # type: ignore[misc]
    """A request whose application begins before its body has arrived."""

    body: "BodyQueue"

    @property
    def has_started(self) -> bool:
        """Whether a part of the answer has been sent."""
        return bool(self._response_started)

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()  # Daphne reads from it; the body is in the queue

    def begin(self, command: bytes, path: bytes, version: bytes) -> None:
        # There are no other protocols here, and the request is answered as it is.
        self.requestHeaders.removeHeader(b"upgrade")
        super().requestReceived(command, path, version)

    def handleContentChunk(self, data: bytes) -> None:
        self.body.feed(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """The body is complete."""
        self.body.finish()


class BodyQueue:
    """What Daphne uses as the queue of an application: its body, then its disconnect."""

    def __init__(self, channel: LimitedChannel) -> None:
        self.channel = channel
        self._bytes = bytearray()
        self._has_news = asyncio.Event()
        self._is_whole = False
        self._is_begun = False  # to be read
        self._is_read = False  # to its end
        self._is_over = False  # the client has left, or the answer is complete
        self.is_expected = False  # the client waits before it sends its body

    def feed(self, data: bytes) -> None:
        if self._is_over:
            self.channel.ignore_body(len(data))
            return
        self._bytes += data
        # The first ones are few: the application has perhaps not looked at the key.
        if len(self._bytes) >= (MAX_READ_BYTES if self._is_begun else MAX_WAITING_BYTES):
            self.channel.pause_body()
        self._has_news.set()

    def finish(self) -> None:
        self._is_whole = True
        self._has_news.set()

    def put_nowait(self, message: dict[str, Any]) -> None:
        """Daphne's messages. Its body is empty."""
        if message["type"] == "http.disconnect":
            self._is_over = True
            self._bytes.clear()
            self._has_news.set()

    async def get(self) -> dict[str, Any]:
        """ASGI's `receive`."""
        if self.is_expected and not self._is_over:
            self.is_expected = False
            self.channel.send_continue()
        while not self._is_over and (self._is_read or not (self._bytes or self._is_whole)):
            self._has_news.clear()
            await self._has_news.wait()
        if self._is_over:
            return {"type": "http.disconnect"}
        body = bytes(self._bytes)
        self._bytes.clear()
        self._is_begun = True
        self._is_read = self._is_whole
        if not self._is_whole:
            self.channel.resume_body()
        return {"type": "http.request", "body": body, "more_body": not self._is_whole}
