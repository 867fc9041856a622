"""Gateways report which requests wait for models, and the node hears of all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.engine import KEY
from vinery_serving.transport.handshake import Stranger, shake_hands
from vinery_serving.transport.sockets import node_socket
from vinery_serving.transport.waiting import Wait, WaitingRequests, WaitingServer


class Node:
    """A node, and each report that it got."""

    def __init__(self, run_dir: Path) -> None:
        self.server = WaitingServer(run_dir, KEY, self._on_change)
        self._changed = asyncio.Event()

    def _on_change(self) -> None:
        self._changed.set()

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_true():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def running_node(run_dir: Path) -> AsyncIterator[Node]:
    node = Node(run_dir)
    await node.server.start()
    yield node
    node.server.close()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[WaitingRequests]:
    gateway = WaitingRequests(tmp_path, KEY, FakeClock(100))
    yield gateway
    await gateway.close()


async def test_each_node_hears_what_waits_at_all_gateways_until_they_end(tmp_path, gateway):
    with gateway.of(7):
        async with running_node(tmp_path) as node:
            await node.until(lambda: 7 in node.server.waits)
        async with running_node(tmp_path) as node:
            await node.until(lambda: node.server.waits == {7: Wait(1, 100)})

    other = WaitingRequests(tmp_path, KEY, FakeClock(90))
    async with running_node(tmp_path) as node:
        with gateway.of(7), gateway.of(7), gateway.of(8):
            await node.until(lambda: node.server.waits == {7: Wait(2, 100), 8: Wait(1, 100)})
            with other.of(7):
                await node.until(lambda: node.server.waits == {7: Wait(3, 90), 8: Wait(1, 100)})
                await other.close()
        await node.until(lambda: node.server.waits == {})

        reader, writer = await asyncio.open_unix_connection(str(node_socket(tmp_path)))
        await shake_hands(reader, writer, KEY, listens=False)
        writer.write(b"\x00\x00\x00\x02hi")
        with gateway.of(7):
            await node.until(lambda: node.server.waits == {7: Wait(1, 100)})
            await gateway.close()
            await node.until(lambda: node.server.waits == {})
        writer.close()


async def test_a_node_hears_no_stranger_and_a_gateway_tells_none(tmp_path, gateway):
    async with running_node(tmp_path) as node:
        reader, writer = await asyncio.open_unix_connection(str(node_socket(tmp_path)))
        with pytest.raises(Stranger):
            await shake_hands(reader, writer, b"another", listens=False)
        writer.write(bytes(1000))
        with suppress(ConnectionError):
            await reader.read()  # until the node closes
        writer.close()
        with gateway.of(7):
            await node.until(lambda: node.server.waits == {7: Wait(1, 100)})
