"""Whether a node keeps this engine: the one that has started it, or one that has adopted it.

An engine outlives its node, so that its streams go on, and the next node adopts it. An engine that
no node keeps for `ORPHAN_S` ends by itself. The node that starts an engine holds its standard input
open until it ends; others hold a connection open on which they have sent `Keep`.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Final

from vinery_serving.transport.server import Connection, SocketServer

# How long an engine waits for the next node: longer than a busy machine needs to start one.
# On other systems than Linux a node cannot adopt, see `node.adoption`.
ORPHAN_S: Final = 30.0 if sys.platform == "linux" else 0.0
_STDIN: Final = 0


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
