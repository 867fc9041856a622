"""`python -m` this module and a name: one engine process of an embeddings or rerank model.

Configuration and reports are those of `vinery_serving.engine`.
"""

import os

from vinery_serving.engine.compiled_cache import alone
from vinery_serving.engine.config import EngineConfig, read_line
from vinery_serving.engine.process import Loop, Supervision, serve


def main(config: EngineConfig) -> int:
    """Return the exit status of `serve`."""

    def load(supervision: Supervision) -> Loop:
        from vinery_serving.engine.kinds.vectors.loop import PoolingLoop
        from vinery_serving.engine.kinds.vectors.model import PoolingModel

        with alone(config.cache_dir):
            model = PoolingModel(config)
        return PoolingLoop(config, model, supervision)

    return serve(config, load)


if __name__ == "__main__":
    # An empty line: the node ended before it had written one.
    status = main(EngineConfig.from_json(line)) if (line := read_line(0)) else 1
    # Without destructors: they would only warn about objects that die with the process anyway.
    os._exit(status)
