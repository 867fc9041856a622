"""Reads the files of models in processes that may be killed, beside the requests.

Templates, tokenizers and configurations come from strangers. A process reads one model and ends.
"""

from dataclasses import replace
from typing import Final

from vinery_serving.core.errors import InvalidRequest, ModelNotReady
from vinery_serving.gateway.engines.models import ModelEntry
from vinery_serving.gateway.workers.pool import JobFailed, WorkerPool
from vinery_serving.gateway.workers.worker import BrokenAnswer
from vinery_serving.prompting.assets import ModelFacts
from vinery_serving.prompting.folder import UnusableFolder

# The limits of reading one model.
_TIME_S: Final = 60
_MEMORY_BYTES: Final = 4 * 2**30
# Models that are read at the same time. One that takes long holds up few others.
_NUM_PROCESSES: Final = 8


class ModelReaders:
    def __init__(self, workers: WorkerPool) -> None:
        self._pool = workers.apart(
            replace(
                workers.limits,
                num_processes=_NUM_PROCESSES,
                cpu_s=_TIME_S,
                wall_s=_TIME_S,
                memory_bytes=_MEMORY_BYTES,
                max_waiting=2**16,
                wait_s=10 * _TIME_S,
            )
        )

    async def read(self, entry: ModelEntry) -> ModelFacts:
        """Raises `UnusableFolder`, and `Overloaded` if no process can be started."""
        arguments = str(entry.folder), entry.options.chat_template, entry.task
        try:
            async with self._pool.worker(entry.id, "model", entry.read_paths) as worker:
                facts: ModelFacts = await worker.call(self._pool.jobs.read_model, *arguments)
                return facts
        except ModelNotReady as error:
            raise UnusableFolder(error.message) from None
        except InvalidRequest:  # over the limits
            raise UnusableFolder(
                f"Reading the model's files takes more than {_TIME_S} s or "
                f"{_MEMORY_BYTES >> 30} GB: a chat template or a tokenizer may have no end."
            ) from None
        except (JobFailed, BrokenAnswer) as error:
            kind = str(error).partition(" ")[0]
            raise UnusableFolder(f"Reading the model's files has led to a {kind}.") from None
