"""Served models in Django's admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from serving.models import EngineState, EngineStatus, ServedModel

# Only the type checker knows that Django's admin classes are generic.
if TYPE_CHECKING:
    _ServedModelAdmin = admin.ModelAdmin[ServedModel]
else:
    _ServedModelAdmin = admin.ModelAdmin


@admin.register(ServedModel)
class ServedModelAdmin(_ServedModelAdmin):
    """What is served, with the state and last error of its engine beside it."""

    list_display = ("name", "folder", "device", "is_loaded", "state", "last_error")
    list_filter = ("is_loaded", "device")
    search_fields = ("name", "folder")
    list_select_related = ("engine",)
    readonly_fields = ("state", "last_error", "num_restarts", "created_at", "updated_at")
    actions = ("load", "unload")

    @admin.display(description="engine")
    def state(self, model: ServedModel) -> str:
        """What the node last saw."""
        status = _status(model)
        return EngineState(status.state).label if status else EngineState.UNLOADED.label

    @admin.display(description="last error")
    def last_error(self, model: ServedModel) -> str:
        """Why the engine last failed, if it did."""
        status = _status(model)
        return status.last_error if status and status.last_error else "-"

    @admin.display(description="restarts")
    def num_restarts(self, model: ServedModel) -> int:
        """How often the node has started it anew."""
        status = _status(model)
        return status.num_restarts if status else 0

    @admin.action(description="Load selected models")
    def load(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        """Have an engine for each."""
        self._set_loaded(request, models, is_loaded=True)

    @admin.action(description="Unload selected models")
    def unload(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        """End their engines; running requests are told."""
        self._set_loaded(request, models, is_loaded=False)

    def _set_loaded(
        self, request: HttpRequest, models: QuerySet[ServedModel], *, is_loaded: bool
    ) -> None:
        for model in models:
            model.is_loaded = is_loaded
            model.save(update_fields=["is_loaded", "updated_at"])
        verb = "loaded" if is_loaded else "unloaded"
        self.message_user(request, f"{len(models)} model(s) will be {verb} now.")

    def get_form(self, *args: Any, **kwargs: Any) -> Any:
        """Long paths need long fields."""
        form = super().get_form(*args, **kwargs)
        if "folder" in form.base_fields:
            form.base_fields["folder"].widget.attrs["size"] = 80
        return form


def _status(model: ServedModel) -> EngineStatus | None:
    return getattr(model, "engine", None)
