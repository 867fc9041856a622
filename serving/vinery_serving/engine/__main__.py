"""`python -m vinery_serving.engine NAME KIND`: an engine process from start to end.

The configuration is the first line of standard input: all users of the machine can see arguments.
NAME is for lists of processes. KIND, if given, is a file of `engine.kinds`, imported before the
configuration comes: a spare process has its code when the model wakes, see `node.engine_process`.

The process writes JSON lines to standard output: when the engine serves, if the model does not
load, and if the pipeline breaks.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
from importlib import metadata

from vinery_serving.engine.config import KINDS, EngineConfig, needs_of, read_line
from vinery_serving.engine.kinds import kind_named
from vinery_serving.engine.log import EngineLogFile
from vinery_serving.engine.loop import EngineLoop
from vinery_serving.engine.supervision import Lifeline, Liveness, PipelineBroken
from vinery_serving.processes import parent
from vinery_serving.processes.confine import confine
from vinery_serving.processes.heartbeat import DRAIN_SIGNAL, Page
from vinery_serving.processes.upkeep import freeze_heap
from vinery_serving.transport.server import SocketServer, bound

logger = logging.getLogger("vinery_serving.engine")


def main(config: EngineConfig) -> int:
    """Return 0 when stopped, 1 if the model cannot be loaded, 3 if the pipeline broke."""
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    log_file = EngineLogFile(config)
    if config.temporary_dir is not None:
        os.environ["TMPDIR"], tempfile.tempdir = str(config.temporary_dir), None
    began_at = time.monotonic()
    logger.info("loading", extra={"fields": _fields(config)})
    heartbeat = None if config.heartbeat_fd is None else Page(config.heartbeat_fd)
    if heartbeat is not None:
        heartbeat.allow_stacks()
    kind_class = kind_named(KINDS[config.task])
    try:
        listener = bound(config.socket_path)
        kind_class.prepare(config)
        confine(needs_of(config))
        liveness = Liveness(heartbeat, config.options.step_timeout_s)
        kind = kind_class.load(config, liveness)
        freeze_heap()
    except (RuntimeError, OSError, MemoryError) as error:
        text = str(error) or repr(error)
        logger.error("the model does not load: %s", text)
        print(json.dumps({"event": "failed", "error": text[:2000]}), file=reports)
        return 1
    lifeline = Lifeline()
    loop = EngineLoop(kind, lifeline, log_file)

    def on_listening(server: SocketServer) -> None:
        lifeline.watch_starter(server)
        _wake_on_signals(server)
        # From now on another node can find the engine by its socket.
        parent.signal_at_its_end(0)
        loaded_s = round(time.monotonic() - began_at, 1)
        logger.info("ready", extra={"fields": {"model": config.name, "loaded_s": loaded_s}})
        print(json.dumps({"event": "ready", **kind.report()}), file=reports)

    signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    signal.signal(DRAIN_SIGNAL, lambda *_: loop.drain())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        loop.run(listener, on_listening)
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
    """Let a signal end a wait for messages: Python goes on waiting after a handler."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def on_readable() -> None:
        os.read(reader, 1024)

    server.watch(reader, on_readable)


if __name__ == "__main__":
    parent.signal_at_its_end(signal.SIGKILL)
    # NumPy's library would start threads, which Landlock would not confine.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in sys.argv[2:]:
        kind_named(name)
    # An empty line: the node ended before it wrote the configuration.
    status = main(EngineConfig.from_json(line)) if (line := read_line(0)) else 1
    # Without destructors: they would only warn about objects that die with the process anyway.
    os._exit(status)
