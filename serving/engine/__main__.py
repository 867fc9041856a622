"""`python -m serving.engine CONFIG_JSON`: one engine process.

It writes JSON lines to standard output: one when it serves, one if it cannot load, and one if its
pipeline breaks. It ends when its standard input ends, so it never outlives its node.
"""

import json
import os
import signal
import sys

from serving.core.heap import freeze_heap
from serving.engine.config import EngineConfig
from serving.transport.server import SocketServer


def main(config: EngineConfig) -> int:
    """Return 0 when stopped, 1 if the model cannot be loaded, 3 if the pipeline broke."""
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries may print to standard output
    from serving.engine.batch import PipelineBroken
    from serving.engine.loop import EngineLoop
    from serving.engine.pipeline import Pipeline

    try:
        loop = EngineLoop(config, Pipeline(config))
        loop.warm_up()
        freeze_heap()
    except (RuntimeError, OSError) as error:
        print(json.dumps({"event": "failed", "error": str(error)[:2000]}), file=reports)
        return 1

    def on_listening(server: SocketServer) -> None:
        loop.watch_parent(0, server)
        print(json.dumps({"event": "ready"}), file=reports)

    signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        loop.run(on_listening)
    except PipelineBroken as error:
        print(json.dumps({"event": "broken", "error": str(error)}), file=reports)
        return 3
    return 0


if __name__ == "__main__":
    status = main(EngineConfig.from_json(sys.argv[1]))
    # Without destructors: they would only warn about objects that die with the process anyway.
    os._exit(status)
