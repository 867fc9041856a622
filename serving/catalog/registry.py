"""Adding, loading, unloading and removing served models: for the command line, the admin
and the first start alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError

from accounts.services import changes
from serving.catalog.models import EngineState, EngineStatus, ServedModel
from serving.constraints.families.registry import by_name
from serving.engine.config import parse_options

REFERENCE_MODEL: Final = "tiny-chat"
_GRAPHS: Final = ("openvino_model.xml", "openvino_language_model.xml")


class UnknownModel(Exception):
    """No served model has this name."""


@dataclass(frozen=True, slots=True)
class ServedModelInfo:
    """One line of a list of models."""

    id: int
    name: str
    folder: Path
    device: str
    options: Mapping[str, Any]
    is_loaded: bool  # wanted
    state: str  # seen: an `EngineState` value
    last_error: str
    created_at: datetime
    updated_at: datetime


def check_options(options: object) -> None:
    """Raises ValidationError for options that the engine or the gateway does not know."""
    if not isinstance(options, Mapping):
        raise ValidationError({"options": 'Write a JSON object, such as {"max_running": 16}.'})
    try:
        parsed = parse_options(dict(options))
        if parsed.output_format:
            by_name(parsed.output_format)
    except ValueError as error:
        raise ValidationError({"options": str(error)}) from error


def check_folder(folder: str | Path) -> None:
    """Raises ValidationError for a folder that cannot hold an OpenVINO language model."""
    path = Path(folder)
    if not path.is_absolute():
        raise ValidationError(f"{path} is not an absolute path.")
    if not path.is_dir():
        raise ValidationError(f"There is no folder {path}.")
    if not any((path / graph).is_file() for graph in _GRAPHS):
        raise ValidationError(
            f"{path} has no openvino_model.xml. Export the model first, for example with "
            "`optimum-cli export openvino`."
        )


def add_model(
    folder: Path,
    *,
    name: str,
    device: str = "CPU",
    options: Mapping[str, Any] | None = None,
    load: bool = True,
) -> ServedModelInfo:
    """Serve a folder under a name. Raises ValidationError."""
    model = ServedModel(
        name=name,
        folder=str(folder.expanduser().resolve()),
        device=device,
        options=dict(options or {}),
        is_loaded=load,
    )
    return _info(changes.add(model))


def set_loaded(name: str, is_loaded: bool) -> None:  # noqa: FBT001
    """Ask the node to start or end a model's engine. Raises `UnknownModel`."""
    load(_find(name), is_loaded)


def load(model: ServedModel, is_loaded: bool) -> None:  # noqa: FBT001
    """The same for a model that is known. Whatever is wrong with it, the node finds out."""
    changes.switch(model, "load" if is_loaded else "unload", is_loaded=is_loaded)


def remove_model(name: str) -> None:
    """Serve it no longer; its folder stays. Raises `UnknownModel`."""
    changes.remove(_find(name))


def list_models() -> list[ServedModelInfo]:
    """All served models by name: one query."""
    return [_info(model) for model in ServedModel.objects.select_related("engine")]


def ensure_reference_model() -> None:
    """Serve the model that ships with Vinery, unless an administrator has chosen already."""
    folder = Path(settings.VINERY_MODELS_DIR) / REFERENCE_MODEL
    if folder.is_dir() and not ServedModel.objects.exists():
        add_model(folder, name=REFERENCE_MODEL)


def _find(name: str) -> ServedModel:
    try:
        return ServedModel.objects.get(name=name)
    except ServedModel.DoesNotExist:
        raise UnknownModel(f"No model is served as {name}.") from None


def _info(model: ServedModel) -> ServedModelInfo:
    try:
        status = model.engine
    except EngineStatus.DoesNotExist:
        status = EngineStatus(state=EngineState.UNLOADED)
    return ServedModelInfo(
        id=model.pk,
        name=model.name,
        folder=Path(model.folder),
        device=model.device,
        options=model.options,
        is_loaded=model.is_loaded,
        state=status.state,
        last_error=status.last_error,
        created_at=model.created_at,
        updated_at=model.updated_at,
    )
