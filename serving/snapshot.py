"""Reads the table of served models as requests need it: one query, no rows kept."""

from __future__ import annotations

import logging
from pathlib import Path

from serving.engine.config import EngineOptions, parse_options
from serving.flow.directory import ModelEntry
from serving.models import ServedModel

log = logging.getLogger(__name__)


def read_entries() -> dict[str, ModelEntry]:
    """All served models by name, in the order of their names."""
    return {model.name: _entry(model) for model in ServedModel.objects.order_by("name")}


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
