"""`python -m serving.engine CONFIG_JSON`: one engine process.

It says on standard output, a JSON line each, that it has loaded or why it has not, and
ends when its standard input does: an engine never outlives the node that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from serving.core.heap import freeze_heap
from serving.engine.config import EngineConfig


def main(config: EngineConfig) -> int:
    """Returns the exit status: 0 for a wanted end, 1 for a model that cannot be loaded,
    3 for a pipeline that broke and must be replaced."""
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not look like our messages
    from serving.engine.batch import PipelineBroken
    from serving.engine.loop import EngineLoop
    from serving.engine.pipeline import Pipeline

    try:
        loop = EngineLoop(config, Pipeline(config))
        loop.warm_up()
        freeze_heap()
    except (RuntimeError, OSError) as error:
        print(json.dumps({"event": "failed", "error": str(error)[:2000]}), file=say)
        return 1

    def listening() -> None:
        loop.watch_parent(0)
        print(json.dumps({"event": "ready"}), file=say)

    signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        loop.run(listening)
    except PipelineBroken as error:
        print(json.dumps({"event": "broken", "error": str(error)}), file=say)
        return 3
    return 0


if __name__ == "__main__":
    status = main(EngineConfig.from_json(sys.argv[1]))
    # Without the destructors: they would only warn of what dies with the process anyway.
    os._exit(status)
