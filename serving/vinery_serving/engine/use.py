"""How an engine is used, for the node: since when it is idle, and its end when it makes room."""

import time
from typing import Final

from vinery_serving.processes.heartbeat import Heartbeat
from vinery_serving.transport.messages import Draining
from vinery_serving.transport.server import SocketServer

# How long an engine that drains waits for requests that were on their way.
DRAIN_WAIT_S: Final = 0.02


class Use:
    """Belongs to the loop of an engine."""

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
