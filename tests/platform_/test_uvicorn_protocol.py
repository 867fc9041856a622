"""How much the event loop reads of a connection at once, and what its transport sends when."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from vinery.process.connections import (
    MAX_HEADER_BYTES,
    MAX_READ_BYTES,
    MAX_READ_CHUNKED_BYTES,
    MAX_UNSENT_BYTES,
    MAX_WAITING_BYTES,
    ConnectionLimits,
    Connections,
)
from vinery.process.uvicorn_protocol import LimitedProtocol, _OpenTransport, _Outbox, limited_by
from vinery_serving.http.refusals import Refusals

_POST = b"POST / HTTP/1.1\r\nhost: a\r\n"
_LENGTH = _POST + b"content-length: 1000000\r\n\r\n"
_CHUNKS = _POST + b"transfer-encoding: chunked\r\n\r\n"


async def read_one_message(_scope: Any, receive: Any, _send: Any) -> None:
    await receive()
    await asyncio.Event().wait()


def connection() -> Any:
    """A protocol as the event loop has it, on a transport that sends nothing."""
    config = uvicorn.Config(read_one_message, log_config=None)
    new_protocol: Any = limited_by(Connections(ConnectionLimits(), Refusals()))
    protocol = new_protocol(config=config, server_state=ServerState(), app_state={}, _loop=None)
    transport = Mock()
    transport.is_closing.return_value = False
    transport.get_extra_info.return_value = None
    protocol.connection_made(transport)
    return protocol


def feed(protocol: Any, data: bytes) -> None:
    while data:
        buffer = protocol.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]


async def test_a_header_is_read_to_its_limit_and_little_ahead_of_an_answer() -> None:
    protocol = connection()
    assert len(protocol.get_buffer(-1)) == MAX_HEADER_BYTES + 1
    feed(protocol, _POST)
    assert len(protocol.get_buffer(-1)) == MAX_HEADER_BYTES + 1 - len(_POST)
    feed(protocol, b"\r\n")
    assert len(protocol.get_buffer(-1)) == MAX_WAITING_BYTES


@pytest.mark.parametrize(
    ("head", "most"), [(_LENGTH, MAX_READ_BYTES), (_CHUNKS, MAX_READ_CHUNKED_BYTES)]
)
async def test_more_of_a_body_is_read_when_its_application_reads(head: bytes, most: int) -> None:
    protocol = connection()
    feed(protocol, head)
    assert len(protocol.get_buffer(-1)) == MAX_WAITING_BYTES

    feed(protocol, b"2\r\nab\r\n")
    for _ in range(3):
        await asyncio.sleep(0)  # the application takes it

    assert len(protocol.get_buffer(-1)) == most


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Recording(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def below() -> Recording:
    return Recording()


@pytest.fixture
def outbox() -> _Outbox:
    return _Outbox()


def open_transport(below: Recording, outbox: _Outbox) -> _OpenTransport:
    table = SimpleNamespace(closes=lambda connection: None)
    protocol = SimpleNamespace(loop=asyncio.get_running_loop(), table=table, outbox=outbox)
    return _OpenTransport(below, cast(LimitedProtocol, protocol))


@pytest.fixture
async def transport(below: Recording, outbox: _Outbox) -> _OpenTransport:
    return open_transport(below, outbox)


async def test_what_is_written_in_one_pass_is_sent_at_once(
    transport: _OpenTransport, below: Recording
) -> None:
    transport.write(HEAD)
    transport.write(b"body")
    transport.write(b"more")
    assert below.sent == []
    await asyncio.sleep(0)
    assert below.sent == [HEAD + b"bodymore"]

    # A head without a body is sent in the same moment.
    transport.write(HEAD)
    await asyncio.sleep(0)
    transport.write(b"body")
    await asyncio.sleep(0)
    assert below.sent[1:] == [HEAD, b"body"]

    # No more than a part of an answer waits.
    part = b"x" * MAX_UNSENT_BYTES
    transport.write(part)
    transport.write(b"y")
    assert below.sent[3:] == [part + b"y"]


async def test_all_connections_send_after_all_that_was_ready_has_run(outbox: _Outbox) -> None:
    done: list[object] = []

    class Noting(Recording):
        def write(self, data: Any) -> None:
            done.append(bytes(data))

    async def answer(number: int) -> None:
        done.append(number)
        open_transport(Noting(), outbox).write(b"%d" % number)

    await asyncio.gather(answer(1), answer(2), answer(3))
    await asyncio.sleep(0)

    assert done == [1, 2, 3, b"1", b"2", b"3"]


async def test_a_connection_that_fails_does_not_hold_up_the_others(
    transport: _OpenTransport, below: Recording, outbox: _Outbox
) -> None:
    class Failing(Recording):
        def write(self, data: Any) -> None:
            raise RuntimeError("no transport")

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    open_transport(Failing(), outbox).write(b"lost")
    transport.write(b"body")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert below.sent == [b"body"]


async def test_an_unsent_answer_is_sent_before_the_connection_closes(
    transport: _OpenTransport, below: Recording
) -> None:
    transport.write(HEAD)
    transport.close()
    transport.write(b"too late")
    await asyncio.sleep(0)

    assert below.sent == [HEAD]
