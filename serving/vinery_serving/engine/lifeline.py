"""What an engine and its node know of each other: whether a node keeps this engine, which is the
node that has started it or one that has adopted it, and how the engine is used.

An engine outlives its node, so that its streams go on, and the next node adopts it. An engine that
no node keeps for `ORPHAN_S` ends by itself. The node that starts an engine holds its standard input
open until it ends; others hold a connection open on which they have sent `Keep`.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from vinery_serving.core.heartbeat import Heartbeat
from vinery_serving.transport.messages import Draining
from vinery_serving.transport.server import Connection, SocketServer

# How long an engine waits for the next node: longer than a busy machine needs to start one.
# On other systems than Linux a node cannot adopt, see `node.adoption`.
ORPHAN_S: Final = 30.0 if sys.platform == "linux" else 0.0
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_STDIN: Final = 0
# How long an engine that drains waits for requests that were on their way.
DRAIN_WAIT_S: Final = 0.02


class Lifeline:
    """Keeps account of the nodes that keep this engine."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._has_starter = True
        self._keepers: set[Connection] = set()
        self._orphan_since_s: float | None = None

    def watch_starter(self, server: SocketServer, fd: int = _STDIN) -> None:
        """Watch the descriptor that the node which has started this engine holds open."""

        def on_readable() -> None:
            if not os.read(fd, 1024):
                server.unwatch(fd)
                self._has_starter = False
                self._note()

        server.watch(fd, on_readable)

    def add(self, keeper: Connection) -> None:
        """A node has adopted this engine. It sends messages about no generations."""
        keeper.gets_broadcasts = False
        self._keepers.add(keeper)
        self._note()

    def discard(self, connection: Connection) -> None:
        """A connection has ended, perhaps a node's."""
        if connection in self._keepers:
            self._keepers.discard(connection)
            self._note()

    @property
    def has_ended(self) -> bool:
        """Whether no node has kept this engine for `ORPHAN_S`."""
        since_s = self._orphan_since_s
        return since_s is not None and self._clock() - since_s >= ORPHAN_S

    def _note(self) -> None:
        is_kept = self._has_starter or bool(self._keepers)
        self._orphan_since_s = None if is_kept else self._clock()


def end_with_node(*, is_on: bool) -> None:
    """Let the kernel kill this process when the node that has started it dies, or no longer.

    While a model loads, the engine has no socket by which another node would find it.
    """
    if sys.platform == "linux":
        number = signal.SIGKILL if is_on else 0
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


class Use:
    """How an engine is used, for the node: since when it is idle, and its end when it makes room.
    Belongs to the loop of the engine."""

    def __init__(self, heartbeat: Heartbeat | None) -> None:
        self._heartbeat = heartbeat
        self.must_drain = False  # the node has asked for it
        self.is_draining = False  # gateways know it
        self._last_at = time.monotonic()  # when a request of a gateway came or ended

    def begin(self) -> None:
        """A request came. The node sees it before a gateway gets its first answer."""
        self._last_at = time.monotonic()
        self.report(is_busy=True)

    def end(self) -> None:
        """A request ended."""
        self._last_at = time.monotonic()

    def report(self, *, is_busy: bool) -> None:
        """Let the node see whether there is a request, and since when there is none."""
        if self._heartbeat is not None:
            self._heartbeat.report_idle(None if is_busy else self._last_at)

    def has_drained(self, server: SocketServer, *, is_busy: bool) -> bool:
        """Whether the engine may end. It announces its end first, and takes what was sent before
        gateways know of it: call this after each look at the socket, and count a message that was
        there as work."""
        if self.is_draining:
            return not is_busy
        self.is_draining = True
        if self._heartbeat is not None:
            self._heartbeat.report_draining()
        server.broadcast(Draining())
        return False
