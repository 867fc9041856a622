"""`python -m vinery_serving.engine NAME`: one engine process.

Its configuration is the first line of standard input: all users of the machine can see arguments.
The name is for those who list processes.

It writes JSON lines to standard output: one when it serves, one if it cannot load, and one if its
pipeline breaks. It ends with its node until it serves, and outlives it then, see `lifeline`.
"""

import contextlib
import json
import os
import signal

from vinery_serving.core.heap import freeze_heap
from vinery_serving.core.heartbeat import Heartbeat
from vinery_serving.engine.config import EngineConfig, read_line
from vinery_serving.engine.lifeline import Lifeline, end_with_node
from vinery_serving.transport.server import SocketServer


def main(config: EngineConfig) -> int:
    """Return 0 when stopped, 1 if the model cannot be loaded, 3 if the pipeline broke."""
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries may print to standard output
    end_with_node(is_on=True)
    from vinery_serving.engine.batch import PipelineBroken
    from vinery_serving.engine.loop import EngineLoop
    from vinery_serving.engine.pipeline import Pipeline

    heartbeat = None if config.heartbeat_fd is None else Heartbeat(config.heartbeat_fd)
    if heartbeat is not None:
        heartbeat.allow_stacks()
    try:
        lifeline = Lifeline()
        loop = EngineLoop(config, Pipeline(config), heartbeat, lifeline)
        loop.warm_up()
        freeze_heap()
    except (RuntimeError, OSError, MemoryError) as error:
        print(
            json.dumps({"event": "failed", "error": (str(error) or repr(error))[:2000]}),
            file=reports,
        )
        return 1

    def on_listening(server: SocketServer) -> None:
        lifeline.watch_starter(server)
        _wake_on_signals(server)
        end_with_node(is_on=False)
        print(json.dumps({"event": "ready"}), file=reports)

    signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        loop.run(on_listening)
    except PipelineBroken as error:
        with contextlib.suppress(OSError):  # the node that has started it is dead
            print(json.dumps({"event": "broken", "error": str(error)}), file=reports)
        return 3
    return 0


def _wake_on_signals(server: SocketServer) -> None:
    """Let a signal end a wait for messages: Python itself goes on waiting after its handler."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def on_readable() -> None:
        os.read(reader, 1024)

    server.watch(reader, on_readable)


if __name__ == "__main__":
    # An empty line: the node ended before it had written one.
    status = main(EngineConfig.from_json(line)) if (line := read_line(0)) else 1
    # Without destructors: they would only warn about objects that die with the process anyway.
    os._exit(status)
