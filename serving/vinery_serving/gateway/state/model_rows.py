"""Reads the rows of served models, and what the node reports of their engines."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from vinery_serving.cluster import places
from vinery_serving.cluster.folders import small_of
from vinery_serving.cluster.lease import host_id
from vinery_serving.core.tasks import Task
from vinery_serving.engine.option_parsing import parse_options
from vinery_serving.engine.options import EngineOptions
from vinery_serving.gateway.engines.models import ModelEntry, Place
from vinery_serving.gateway.state.copies import Models
from vinery_serving.models.engine_status import EngineState
from vinery_serving.models.host_rows import Placement
from vinery_serving.models.models import ModelAlias, ServedModel, own_folder, stored_folder
from vinery_serving.transport.sockets import settings_key

log = logging.getLogger(__name__)

# An engine that failed this often since it was ready is not just restarting.
_FAILING_AFTER_FAILURES: Final = 2


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
