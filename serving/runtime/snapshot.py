"""Reads the table of served models as requests need it: one query, no rows kept."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from serving.catalog.models import EngineState, ServedModel
from serving.engine.config import EngineOptions, parse_options
from serving.flow.directory import ModelEntry

log = logging.getLogger(__name__)


# An engine that has died this often in a row is not just being replaced.
_FAILING_AFTER_RESTARTS: Final = 2


def read_models() -> tuple[dict[str, ModelEntry], frozenset[str]]:
    """All served models by name, in the order of their names, and the names of those whose
    engines fail again and again."""
    models = list(ServedModel.objects.select_related("engine").order_by("name"))
    failing = frozenset(model.name for model in models if _is_failing(model))
    return {model.name: _entry(model) for model in models}, failing


def _is_failing(model: ServedModel) -> bool:
    status = model.status
    if status.state == EngineState.READY:
        return False
    return bool(status.last_error) and status.num_restarts >= _FAILING_AFTER_RESTARTS


def _entry(model: ServedModel) -> ModelEntry:
    return ModelEntry(
        id=model.pk,
        name=model.name,
        folder=Path(model.folder),
        options=_options(model),
        is_loaded=model.is_loaded,
        created_at=model.created_at,
        updated_at=model.updated_at,
    )


def _options(model: ServedModel) -> EngineOptions:
    """Options that cannot be read keep the engine from starting: the node says so."""
    try:
        return parse_options(model.options)
    except ValueError as error:
        log.warning("bad options model=%s: %s", model.name, error)
        return EngineOptions()
