"""One engine process from its start to its end, whatever its model does.

It writes JSON lines to standard output: one when it serves, one if it cannot load, and one if its
pipeline breaks. It ends with its node until it serves.

Then it outlives its node, so that its streams go on, and the next node adopts it. An engine that
no node keeps for `ORPHAN_S` ends by itself. The node that starts an engine holds its standard input
open until it ends; others hold a connection open on which they have sent `Keep`.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final, Protocol

from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.log import EngineLogFile
from vinery_serving.processes import parent
from vinery_serving.processes.heartbeat import DRAIN_SIGNAL, Heartbeat
from vinery_serving.processes.upkeep import freeze_heap
from vinery_serving.transport.server import Connection, SocketServer

logger = logging.getLogger("vinery_serving.engine")

# How long an engine waits for the next node: longer than a busy machine needs to start one.
# On other systems than Linux a node cannot adopt, see `node.adoption`.
ORPHAN_S: Final = 30.0 if sys.platform == "linux" else 0.0
_STDIN: Final = 0


class Lifeline:
    """Keeps account of the nodes that keep this engine: the one that has started it, or those that
    have adopted it."""

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


class PipelineBroken(Exception):
    """Only a new engine process can help."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """What the loop of an engine gets from its process."""

    heartbeat: Heartbeat | None
    lifeline: Lifeline
    log_file: EngineLogFile


class Loop(Protocol):
    """The engine's only thread, with a loaded model."""

    def run(self, on_listening: Callable[[SocketServer], None]) -> None:
        """Serve until `stop`, or until no node is left. Raises PipelineBroken."""
        ...

    def stop(self) -> None:
        """Leave `run` soon. Safe to call from a signal handler."""
        ...

    def drain(self) -> None:
        """Finish what there is, let gateways send no more, and leave `run`. Safe to call from a
        signal handler."""
        ...

    def report(self) -> Mapping[str, Any]:
        """What the node reads beside the event `ready`."""
        ...


def serve(config: EngineConfig, load: Callable[[Supervision], Loop]) -> int:
    """Return 0 when stopped, 1 if the model cannot be loaded, 3 if the pipeline broke."""
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    log_file = EngineLogFile(config)
    if config.temporary_dir is not None:
        os.environ["TMPDIR"], tempfile.tempdir = str(config.temporary_dir), None
    began_at = time.monotonic()
    logger.info("loading", extra={"fields": _fields(config)})
    parent.signal_at_its_end(signal.SIGKILL)
    heartbeat = None if config.heartbeat_fd is None else Heartbeat(config.heartbeat_fd)
    if heartbeat is not None:
        heartbeat.allow_stacks()
    try:
        lifeline = Lifeline()
        loop = load(Supervision(heartbeat, lifeline, log_file))
        freeze_heap()
    except (RuntimeError, OSError, MemoryError) as error:
        text = str(error) or repr(error)
        logger.error("the model does not load: %s", text)
        print(json.dumps({"event": "failed", "error": text[:2000]}), file=reports)
        return 1

    def on_listening(server: SocketServer) -> None:
        lifeline.watch_starter(server)
        _wake_on_signals(server)
        # Until now no other node could have found it by its socket.
        parent.signal_at_its_end(0)
        loaded_s = round(time.monotonic() - began_at, 1)
        logger.info("ready", extra={"fields": {"model": config.name, "loaded_s": loaded_s}})
        print(json.dumps({"event": "ready", **loop.report()}), file=reports)

    signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    signal.signal(DRAIN_SIGNAL, lambda *_: loop.drain())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        loop.run(on_listening)
    except PipelineBroken as error:
        logger.error("the pipeline broke: %s", error)
        with contextlib.suppress(OSError):  # the node that has started it is dead
            print(json.dumps({"event": "broken", "error": str(error)}), file=reports)
        return 3
    logger.info("stopped")
    return 0


def _fields(config: EngineConfig) -> dict[str, object]:
    return {
        "model": config.name,
        "folder": config.folder,
        "device": config.device,
        "openvino": metadata.version("openvino"),
        "pid": os.getpid(),
    }


def _wake_on_signals(server: SocketServer) -> None:
    """Let a signal end a wait for messages: Python itself goes on waiting after its handler."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def on_readable() -> None:
        os.read(reader, 1024)

    server.watch(reader, on_readable)
