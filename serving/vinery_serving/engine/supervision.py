"""The ties of an engine process to its node: signs of life, and the processes that keep the engine.
An engine that no process keeps for `ORPHAN_S` ends by itself. The node that starts an engine holds
the standard input open; the supervisor and other nodes hold a connection open with `Keep` on it."""

import os
import sys
import time
from collections.abc import Callable
from typing import Final

from vinery_serving.engine.estimates import LEAST_S, StepLimits
from vinery_serving.processes.heartbeat import Page
from vinery_serving.transport.messages import Draining
from vinery_serving.transport.server import Connection, SocketServer

# How long an engine waits for the next supervisor: longer than a busy machine needs to start one.
# On other systems than Linux a node cannot adopt, see `node.adoption`.
ORPHAN_S: Final = 30.0 if sys.platform == "linux" else 0.0
_STDIN: Final = 0


class PipelineBroken(Exception):
    """Only a new engine process can help."""


class Lifeline:
    """Counts the processes that keep this engine: the starter, adopting nodes, the supervisor."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._has_starter = True
        self._keepers: set[Connection] = set()
        self._orphan_since_s: float | None = None

    def watch_starter(self, server: SocketServer, fd: int = _STDIN) -> None:
        def on_readable() -> None:
            if not os.read(fd, 1024):
                server.unwatch(fd)
                self._has_starter = False
                self._note()

        server.watch(fd, on_readable)

    def add(self, keeper: Connection) -> None:
        """Note that another process keeps this engine. Its connection gets no broadcasts."""
        keeper.gets_broadcasts = False
        self._keepers.add(keeper)
        self._note()

    def discard(self, connection: Connection) -> None:
        if connection in self._keepers:
            self._keepers.discard(connection)
            self._note()

    @property
    def has_ended(self) -> bool:
        since_s = self._orphan_since_s
        return since_s is not None and self._clock() - since_s >= ORPHAN_S

    def _note(self) -> None:
        is_kept = self._has_starter or bool(self._keepers)
        self._orphan_since_s = None if is_kept else self._clock()


class Liveness:
    """Writes the page that engine and node share: the deadline of the next sign of life, since when
    the engine is idle, and an end to make room."""

    def __init__(self, heartbeat: Page | None = None, step_timeout_s: float = float("inf")) -> None:
        """None: no node watches."""
        self._heartbeat = heartbeat
        self._limits = StepLimits(step_timeout_s)
        self._num_tokens = 0  # of the present step
        self._step_began_at = 0.0
        self._used_at = time.monotonic()  # when a request of a gateway came or ended
        self.is_listening = False  # until then the load has its own limit
        self.must_drain = False  # the node has asked
        self.is_draining = False  # gateways know

    def promise(self, limit_s: float = LEAST_S) -> None:
        if self._heartbeat is not None and self.is_listening:
            self._heartbeat.beat(limit_s)

    def begin_step(self, num_tokens: int) -> None:
        """Note that a step begins: it may take some times as long as earlier steps."""
        self._num_tokens = num_tokens
        self.promise(self._limits.limit_s(num_tokens))
        self._step_began_at = time.monotonic()

    def end_step(self) -> None:
        self._limits.note(self._num_tokens, time.monotonic() - self._step_began_at)

    def begin_request(self) -> None:
        self._used_at = time.monotonic()
        self.show(is_busy=True)

    def end_request(self) -> None:
        self._used_at = time.monotonic()

    def show(self, *, is_busy: bool) -> None:
        if self._heartbeat is not None:
            self._heartbeat.report_idle(None if is_busy else self._used_at)

    def has_drained(self, server: SocketServer, *, is_busy: bool) -> bool:
        """Whether the engine may end. The first call announces the end, and gateways may still send
        until they know: call this after each look at the socket, and count each message as work."""
        if self.is_draining:
            return not is_busy
        self.is_draining = True
        if self._heartbeat is not None:
            self._heartbeat.report_draining()
        server.broadcast(Draining())
        return False
