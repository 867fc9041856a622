"""Which nodes keep an engine, with a fake clock."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.engine import HELLO
from vinery_serving.engine.supervision import ORPHAN_S, Lifeline
from vinery_serving.transport.server import Connection, SocketServer, bound


class Started:
    """The lifeline of an engine whose node holds a pipe open."""

    def __init__(self, server: SocketServer) -> None:
        self.clock = FakeClock(1000.0)
        self.lifeline = Lifeline(self.clock)
        self._server = server
        reader, self._node_end = os.pipe()
        self.lifeline.watch_starter(server, reader)

    def kill_node(self) -> None:
        os.close(self._node_end)
        self._server.poll(0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    with closing(SocketServer(bound(tmp_path / "e.sock"), b"", lambda: HELLO)) as server:
        yield server


class FakeConnection(Connection):
    """The connection of a node."""

    def __init__(self) -> None:
        self.gets_broadcasts = True


def test_an_engine_ends_a_while_after_the_last_node_that_kept_or_adopted_it(server):
    started = Started(server)
    started.clock.pass_s(1e6)
    assert not started.lifeline.has_ended
    started.kill_node()
    started.clock.pass_s(ORPHAN_S - 1)
    server.poll(0)  # the end of the pipe is noticed once
    assert not started.lifeline.has_ended
    started.clock.pass_s(1)
    assert started.lifeline.has_ended

    started = Started(server)
    node, gateway = FakeConnection(), FakeConnection()
    started.kill_node()
    started.lifeline.add(node)
    started.clock.pass_s(1e6)
    started.lifeline.discard(gateway)
    assert not started.lifeline.has_ended

    started.lifeline.discard(node)
    started.clock.pass_s(ORPHAN_S)
    assert started.lifeline.has_ended

    started = Started(server)
    node = FakeConnection()
    started.lifeline.add(node)
    assert not node.gets_broadcasts, "of the load"
    started.kill_node()
    started.clock.pass_s(1e6)
    assert not started.lifeline.has_ended
