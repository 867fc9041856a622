"""How much the event loop reads of a connection at once."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from vinery.process.connections import (
    MAX_HEADER_BYTES,
    MAX_READ_BYTES,
    MAX_READ_CHUNKED_BYTES,
    MAX_WAITING_BYTES,
    ConnectionLimits,
    Connections,
)
from vinery.process.uvicorn_protocol import limited_by
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
