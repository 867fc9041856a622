"""`python -m vinery_serving.engine NAME`: one engine process of a model that generates text.

Its configuration is the first line of standard input: all users of the machine can see arguments.
The name is for those who list processes.
"""

import importlib
import os
import signal

from vinery_serving.engine.compiled_cache import alone
from vinery_serving.engine.config import EngineConfig, read_line
from vinery_serving.engine.process import Loop, Supervision, serve
from vinery_serving.processes import parent


def main(config: EngineConfig) -> int:
    """Return the exit status of `serve`."""

    def load(supervision: Supervision) -> Loop:
        from vinery_serving.engine.loop import EngineLoop
        from vinery_serving.engine.pipeline import Pipeline

        heartbeat, lifeline = supervision.heartbeat, supervision.lifeline
        with alone(config.cache_dir):
            pipeline = Pipeline(config)
        loop = EngineLoop(config, pipeline, heartbeat, lifeline, supervision.log_file)
        loop.warm_up()
        return loop

    return serve(config, load)


if __name__ == "__main__":
    parent.signal_at_its_end(signal.SIGKILL)
    # A spare process has these when its model comes, see `node.starting`.
    importlib.import_module("vinery_serving.engine.loop")
    # An empty line: the node ended before it had written one.
    status = main(EngineConfig.from_json(line)) if (line := read_line(0)) else 1
    # Without destructors: they would only warn about objects that die with the process anyway.
    os._exit(status)
