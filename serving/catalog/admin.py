"""Served models in Django's admin."""

import json
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from vinery_accounts.admin.base import AuditedAdmin
from vinery_serving.catalog import registry
from vinery_serving.catalog.engine_log import engine_log_text
from vinery_serving.catalog.models import EngineState, ServedModel
from vinery_serving.engine.config import option_documents

_ENGINE_FIELDS: Final = ("state", "num_restarts", "last_error", "log")
# A change of these restarts the engine.
_NEEDS_NEW_ENGINE: Final = frozenset({"name", "folder", "device", "options"})

_DEVICES: Final = ("CPU", "GPU", "GPU.0", "GPU.1")
_HELP_TEXTS: Final = {
    "name": "What clients send as <code>model</code>.",
    "folder": "Absolute path, on this server, of the folder that holds "
    "<code>openvino_model.xml</code>.",
    "device": "OpenVINO's name of a device: CPU, GPU, or GPU.1 for the second GPU. With a device "
    "that this server lacks the model fails to load, and its last error names the reason.",
    "is_loaded": "An engine runs for it as long as this is ticked. Saving returns at once. Loading "
    "takes seconds to minutes; the list of served models shows the state.",
}


class _IndentedEncoder(json.JSONEncoder):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "indent": 2})


class DeviceInput(forms.TextInput):
    """A text field with suggestions, because devices differ by machine."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        list_id = f"{name}_choices"
        field = super().render(name, value, {**(attrs or {}), "list": list_id}, renderer)
        options = format_html_join("", '<option value="{}">', ((each,) for each in _DEVICES))
        return format_html('{}<datalist id="{}">{}</datalist>', field, list_id, options)


class ServedModelForm(forms.ModelForm):  # type: ignore[type-arg]
    options = forms.JSONField(
        required=False,
        initial=dict,
        encoder=_IndentedEncoder,
        widget=forms.Textarea(
            attrs={"rows": 6, "cols": 80, "spellcheck": "false", "class": "vLargeTextField code"}
        ),
    )

    class Meta:
        model = ServedModel
        fields = ("name", "folder", "device", "options", "is_loaded")
        widgets = {
            "name": forms.TextInput(attrs={"size": 40, "spellcheck": "false"}),
            "folder": forms.TextInput(attrs={"size": 80, "spellcheck": "false", "class": "code"}),
            "device": DeviceInput(attrs={"size": 20}),
        }
        help_texts = _HELP_TEXTS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "options" in self.fields:  # a user who may only view has no fields
            self.fields["options"].help_text = _options_help()

    def clean_options(self) -> Any:
        """An empty field means no options."""
        options = self.cleaned_data["options"]
        return {} if options is None else options


@admin.register(ServedModel)
class ServedModelAdmin(AuditedAdmin):
    form = ServedModelForm
    empty_text = "No model is served yet. Add one: all it takes is its folder and a name."
    list_display = ("name", "state", "device", "folder", "short_error")
    list_filter = ("is_loaded", "device")
    search_fields = ("name", "folder")
    list_select_related = ("engine",)
    readonly_fields = (*_ENGINE_FIELDS, "created_at", "updated_at")
    actions = ("load", "unload")

    def get_fieldsets(self, request: HttpRequest, obj: ServedModel | None = None) -> Any:
        """The engine's fields appear once the model exists."""
        settings = (None, {"fields": ("name", "folder", "device", "options", "is_loaded")})
        if obj is None:
            return (settings,)
        engine = ("Engine", {"fields": _ENGINE_FIELDS})
        return (settings, engine, ("Dates", {"fields": (("created_at", "updated_at"),)}))

    @admin.display(description="state", ordering="engine__state")
    def state(self, model: ServedModel) -> SafeString:
        """The engine's state, or the change that the node has not made yet."""
        return format_html('<span class="state state-{}">{}</span>', *_state_of(model))

    @admin.display(description="last error")
    def short_error(self, model: ServedModel) -> str:
        return Truncator(self.last_error(model)).chars(80)

    @admin.display(description="last error")
    def last_error(self, model: ServedModel) -> str:
        return model.status.last_error or "-"

    @admin.display(description="last log lines")
    def log(self, model: ServedModel) -> SafeString:
        return format_html('<pre class="log">{}</pre>', engine_log_text(model.name))

    @admin.display(description="restarts")
    def num_restarts(self, model: ServedModel) -> int:
        return model.status.num_restarts

    @admin.action(description="Load selected models", permissions=["change"])
    def load(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        if names := self._set_loaded(request, models, is_loaded=True):
            messages.success(request, f"Loading {names}. Reload the page to see when it is ready.")
        else:
            messages.info(request, "There is nothing to load: each is loaded, or being loaded.")

    @admin.action(description="Unload selected models", permissions=["change"])
    def unload(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        """Ask the node to end the engines. Their running requests fail."""
        if names := self._set_loaded(request, models, is_loaded=False):
            messages.success(
                request, f"Unloading {names}. Clients get an error until it is loaded."
            )
        else:
            messages.info(request, "There is nothing to unload: none of them is loaded.")

    def save_model(self, request: HttpRequest, obj: ServedModel, form: Any, change: Any) -> None:
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
    """The state that chooses the colour, and its text. The node needs a moment for a change, so
    the text names a change that is pending."""
    state = EngineState(model.status.state)
    if model.is_loaded and state is EngineState.UNLOADED:
        return EngineState.LOADING, "Waiting to load"
    if not model.is_loaded and state is not EngineState.UNLOADED:
        return EngineState.LOADING, "Unloading"
    return state, str(state.label)


def _options_help() -> SafeString:
    rows = format_html_join(
        "",
        "<tr><th scope=row><code>{}</code></th><td><code>{}</code></td><td>{}</td></tr>",
        ((each.name, each.default, each.meaning) for each in option_documents()),
    )
    return format_html(
        "A JSON object with the options that differ from their defaults, such as "
        '<code>{{"max_running": 16}}</code>. A change restarts the engine.'
        "<details class=options><summary>All options</summary><table><thead><tr><th>Option</th>"
        "<th>Default</th><th>Meaning</th></tr></thead><tbody>{}</tbody></table></details>",
        rows,
    )
