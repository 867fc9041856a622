"""What a web process reads of models, and the sealed copies of all its tables.

Rows have the served models and what the node reports of their engines. The files of models are read
in processes that may be killed, beside the requests: templates, tokenizers and configurations come
from strangers. Such a process reads one model and ends. With the copies a process starts while the
database is away.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from vinery_accounts.base.sealed_table import SealedTable
from vinery_accounts.keys.table import KeyEntries
from vinery_accounts.limits.service import Snapshot
from vinery_serving.cluster import places
from vinery_serving.cluster.folders import small_of
from vinery_serving.cluster.lease import host_id
from vinery_serving.core.errors import InvalidRequest, ModelNotReady
from vinery_serving.core.tasks import Task
from vinery_serving.engine.options import EngineOptions, parse_options
from vinery_serving.gateway.engines.models import ModelEntry, Place
from vinery_serving.gateway.workers.pool import JobFailed, WorkerPool
from vinery_serving.gateway.workers.worker import BrokenAnswer
from vinery_serving.media.tables.policies import Levels
from vinery_serving.models.engine_status import EngineState
from vinery_serving.models.host_rows import Placement
from vinery_serving.models.models import ModelAlias, ServedModel, own_folder, stored_folder
from vinery_serving.prompting.assets import ModelFacts
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.transport.sockets import settings_key

log = logging.getLogger(__name__)

# An engine that failed this often since it was ready is not just restarting.
_FAILING_AFTER_FAILURES: Final = 2
# The limits of reading one model.
_TIME_S: Final = 60
_MEMORY_BYTES: Final = 4 * 2**30
# Models that are read at the same time. One that takes long holds up few others.
_NUM_PROCESSES: Final = 8
# The arguments of `LocalDirectory.update`.
Models = tuple[dict[str, ModelEntry], frozenset[str], dict[str, dict[str, int]], frozenset[str]]


class EngineReport(NamedTuple):
    device: str
    state: str
    num_restarts: int


def read_models() -> tuple[Models, dict[str, EngineReport]]:
    """All served models by name, sorted, the names of models whose engines fail again and again,
    the targets of all aliases, the names of sleeping models, and the reports of engines. Two
    queries, and two for several hosts."""
    models = list(ServedModel.objects.select_related("engine").order_by("name"))
    failing = frozenset(model.name for model in models if _is_failing(model))
    aliases = dict(ModelAlias.objects.order_by("name").values_list("name", "targets"))
    reports = {
        each.name: EngineReport(each.device, each.shown_state.value, each.status.num_restarts)
        for each in models
    }
    asleep = (name for name, each in reports.items() if each.state == EngineState.ASLEEP)
    found = places.by_model()
    entries = {model.name: _entry(model, found.get(model.pk, [])) for model in models}
    return (entries, failing, aliases, frozenset(asleep)), reports


def _place(row: Placement) -> Place:
    if row.host_id == host_id():
        return Place(row.replica)
    return Place(row.replica, row.host.address, row.host.fingerprint)


def _is_failing(model: ServedModel) -> bool:
    status = model.status
    if model.unreadable_reason:
        return False  # the directory knows better
    if status.state in (EngineState.READY, EngineState.FAILED):
        return status.state == EngineState.FAILED
    return status.num_failures_in_row >= _FAILING_AFTER_FAILURES


def _entry(model: ServedModel, rows: Sequence[Placement]) -> ModelEntry:
    """`rows`: where its replicas run, of several hosts."""
    try:
        options = parse_options(model.options, Task(model.task))
    except ValueError as error:  # the engine cannot start, and the node reports why
        log.warning("bad options: %s", error, extra={"fields": {"model": model.name}})
        options = EngineOptions()
    folder = Path(model.folder)
    if (
        rows
        and not folder.is_dir()
        and (small := own_folder(small_of(stored_folder(model.folder)))).is_dir()
    ):
        folder = small
    return ModelEntry(
        id=model.pk,
        name=model.name,
        folder=folder,
        options=options,
        is_loaded=model.is_loaded and bool(model.folder),
        created_at=model.created_at,
        updated_at=model.updated_at,
        settings_key=settings_key(model.settings_digest),
        num_replicas=model.num_replicas,
        places=tuple(map(_place, rows)),
        task=Task(model.task),
        projects=frozenset(model.project_ids),
    )


# -- Files


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


# -- Copies


class Tables(NamedTuple):
    keys: KeyEntries
    limits: Snapshot
    media: Levels
    models: Models
    quarantine: frozenset[str]


class Copies:
    def __init__(self) -> None:
        types = get_type_hints(Tables).items()
        self._copies = [SealedTable[Any](name, content) for name, content in types]

    def keep(self, tables: Tables, read_at_s: float) -> None:
        for copy, content in zip(self._copies, tables, strict=True):
            copy.keep(content, read_at_s)

    def read(self) -> tuple[Tables, float] | None:
        """Return all tables and when the oldest one was read; None if one is missing."""
        found = [copy.read() for copy in self._copies]
        read = [each for each in found if each is not None]
        if len(read) < len(found):
            return None
        times, contents = zip(*read, strict=True)
        return Tables(*contents), min(times)
