"""Adds, loads and unloads served models. Each change is audited."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from vinery_accounts.access import changes
from vinery_accounts.access.served import Served
from vinery_serving.core.tasks import Task
from vinery_serving.models.engine_status import EngineState, ShownState
from vinery_serving.models.models import ModelAlias, ServedModel, shipped_folder

REFERENCE_MODEL: Final = "tiny-chat"


def add_model(
    folder: Path,
    *,
    name: str,
    device: str = "CPU",
    options: Mapping[str, Any] | None = None,
    load: bool = True,
    **more: Any,
) -> ServedModel:
    """Serve a folder or a shipped model, with `more` columns. Raises ValidationError."""
    shipped = None if folder.exists() else shipped_folder(str(folder))
    model = ServedModel(
        name=name,
        folder=str(shipped or folder.expanduser().resolve()),
        device=device,
        options=dict(options or {}),
        is_loaded=load,
        **more,
    )
    return changes.add(model)


def load(model: ServedModel, is_loaded: bool) -> ServedModel:  # noqa: FBT001
    """Ask the node to start or end the engine, to try again if the model could not load, or to wake
    it. The model is not checked: the node reports its errors."""
    if is_loaded and model.is_loaded:
        status = model.status
        if status.has_failed or status.state == EngineState.ASLEEP:
            return retry(model)
    return changes.switch(model, "load" if is_loaded else "unload", is_loaded=is_loaded)


def retry(model: ServedModel) -> ServedModel:
    return changes.switch(model, "retry", retried_at=timezone.now())


def list_models() -> list[ServedModel]:
    return list(ServedModel.objects.select_related("engine"))


def read_served() -> list[Served]:
    """Return models, the ready ones first, and aliases."""
    models = sorted(list_models(), key=lambda each: each.shown_state is not ShownState.READY)
    found = {each.name: _served(each) for each in models}
    for alias in ModelAlias.objects.all():
        targets = [found[name] for name in alias.targets if name in found]
        is_for_all = not all(each.project_ids for each in targets)
        found[alias.name] = Served(
            alias.name,
            () if is_for_all else [id_ for each in targets for id_ in each.project_ids],
            is_alias=True,
            is_for_chats=any(each.is_for_chats for each in targets),
            answers_chats=any(each.answers_chats for each in targets),
        )
    return list(found.values())


def _served(model: ServedModel) -> Served:
    is_chat = Task(model.task) in (Task.CHAT, Task.VISION)
    return Served(
        *(model.name, model.project_ids),
        is_for_chats=is_chat,
        answers_chats=is_chat and model.shown_state in (ShownState.READY, ShownState.ASLEEP),
        row_id=model.pk,
        state=model.shown_state.value,
        reason=model.status.reason,
    )


def ensure_reference_model() -> None:
    """Serve the model that ships with Vinery, unless an administrator has added one."""
    folder = Path(settings.VINERY_MODELS_DIR) / REFERENCE_MODEL
    if folder.is_dir() and not ServedModel.objects.exists():
        add_model(folder, name=REFERENCE_MODEL)
