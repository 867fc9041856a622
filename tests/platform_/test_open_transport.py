"""What the transport of a connection sends at once, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vinery.process.connections import MAX_UNSENT_BYTES
from vinery.process.uvicorn_protocol import LimitedProtocol, _OpenTransport, _Outbox

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
