"""Served models in Django's admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from accounts.admin.audited import AuditedAdmin
from serving.catalog import registry
from serving.catalog.admin_form import ServedModelForm
from serving.catalog.models import EngineState, EngineStatus, ServedModel

# Only the type checker knows that Django's admin classes are generic.
if TYPE_CHECKING:
    _ServedModelAdmin = AuditedAdmin[ServedModel]
else:
    _ServedModelAdmin = AuditedAdmin

_ERROR_LENGTH_IN_LIST: Final = 80  # characters
_ENGINE_FIELDS: Final = ("state", "num_restarts", "last_error")
# A change of these starts the engine anew.
_NEEDS_NEW_ENGINE: Final = frozenset({"name", "folder", "device", "options"})


@admin.register(ServedModel)
class ServedModelAdmin(_ServedModelAdmin):
    """What is served, with the state and last error of its engine beside it."""

    form = ServedModelForm
    empty_text = "No model is served yet. Add one: all it takes is its folder and a name."
    list_display = ("name", "state", "device", "folder", "short_error")
    list_filter = ("is_loaded", "device")
    search_fields = ("name", "folder")
    list_select_related = ("engine",)
    readonly_fields = (*_ENGINE_FIELDS, "created_at", "updated_at")
    actions = ("load", "unload")

    def get_fieldsets(self, request: HttpRequest, obj: ServedModel | None = None) -> Any:
        """A new model has no engine to tell of yet."""
        chosen = (None, {"fields": ("name", "folder", "device", "options", "is_loaded")})
        if obj is None:
            return (chosen,)
        engine = ("Engine", {"fields": _ENGINE_FIELDS})
        return (chosen, engine, ("Dates", {"fields": (("created_at", "updated_at"),)}))

    @admin.display(description="state", ordering="engine__state")
    def state(self, model: ServedModel) -> SafeString:
        """What the node last saw, and what is about to change."""
        return format_html('<span class="state state-{}">{}</span>', *_state_of(model))

    @admin.display(description="last error")
    def short_error(self, model: ServedModel) -> str:
        """The beginning of the last error."""
        return Truncator(self.last_error(model)).chars(_ERROR_LENGTH_IN_LIST)

    @admin.display(description="last error")
    def last_error(self, model: ServedModel) -> str:
        """Why the engine last failed, if it did."""
        status = _status(model)
        return (status.last_error if status else "") or "-"

    @admin.display(description="restarts")
    def num_restarts(self, model: ServedModel) -> int:
        """How often the node has started it anew."""
        status = _status(model)
        return status.num_restarts if status else 0

    @admin.action(description="Load selected models", permissions=["change"])
    def load(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        """Have an engine for each."""
        names = self._set_loaded(request, models, is_loaded=True)
        if names:
            messages.success(request, f"Loading {names}. Reload the page to see when it is ready.")
        else:
            messages.info(request, "There is nothing to load: each is loaded, or being loaded.")

    @admin.action(description="Unload selected models", permissions=["change"])
    def unload(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        """End their engines; running requests are told."""
        names = self._set_loaded(request, models, is_loaded=False)
        if names:
            messages.success(
                request, f"Unloading {names}. Clients get an error until it is loaded."
            )
        else:
            messages.info(request, "There is nothing to unload: none of them is loaded.")

    def save_model(
        self,
        request: HttpRequest,
        obj: ServedModel,
        form: Any,
        change: bool,  # noqa: FBT001
    ) -> None:
        """Save it, and say what the node does about it."""
        super().save_model(request, obj, form, change)
        changed = set(form.changed_data)
        if obj.is_loaded and (not change or changed & (_NEEDS_NEW_ENGINE | {"is_loaded"})):
            messages.info(
                request,
                f"Loading {obj.name}: its state is in this list. Reload the page to see when it "
                "is ready.",
            )
        elif change and "is_loaded" in changed:
            messages.info(request, f"Unloading {obj.name}.")

    def _set_loaded(
        self, request: HttpRequest, models: QuerySet[ServedModel], *, is_loaded: bool
    ) -> str:
        """The names of the models that this changes."""
        changed = [model for model in models if model.is_loaded is not is_loaded]
        for model in changed:
            registry.load(model, is_loaded)
            self.log_change(request, model, "Loaded." if is_loaded else "Unloaded.")
        return ", ".join(model.name for model in changed)


def _state_of(model: ServedModel) -> tuple[EngineState, str]:
    """The state whose colour it has, and the words for it. The node needs a moment to do what
    it is asked, and words that ignore the order would look as if it were lost."""
    status = _status(model)
    state = EngineState(status.state) if status else EngineState.UNLOADED
    if model.is_loaded and state is EngineState.UNLOADED:
        return EngineState.LOADING, "Waiting to load"
    if not model.is_loaded and state is not EngineState.UNLOADED:
        return EngineState.LOADING, "Unloading"
    return state, str(state.label)


def _status(model: ServedModel) -> EngineStatus | None:
    return getattr(model, "engine", None)
