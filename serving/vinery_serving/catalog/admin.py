"""Served models in Django's admin."""

import json
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import formats, timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from vinery_accounts.admin.base import AuditedAdmin, ResourceAdmin
from vinery_accounts.resources.base import Conflict
from vinery_serving.catalog import registry
from vinery_serving.catalog.alias_resource import MODEL_ALIASES, targets_text
from vinery_serving.catalog.aliases import ModelAlias
from vinery_serving.catalog.engine_log import engine_log_text
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.option_fields import DeviceInput, device_help
from vinery_serving.catalog.renaming import follow_name, left_behind
from vinery_serving.catalog.resource import MODELS
from vinery_serving.engine.option_parsing import option_documents

_ENGINE_FIELDS: Final = (
    "state",
    "attempts",
    "waiting",
    "memory",
    "num_restarts",
    "last_error",
    "log",
)
# A change of these needs another engine.
_NEEDS_NEW_ENGINE: Final = frozenset({"name", "folder", "device", "replica_devices", "options"})

_HELP_TEXTS: Final = {
    "name": "What clients send as <code>model</code>.",
    "folder": "Absolute path, on this server, of the folder that holds "
    "<code>openvino_model.xml</code>, or the name of a model that ships with Vinery, such as "
    "<code>tiny-vision</code>.",
    "is_loaded": "An engine runs for it as long as this is ticked. Saving returns at once. Loading "
    "takes seconds to minutes; the list of served models shows the state.",
}


class _IndentedEncoder(json.JSONEncoder):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "indent": 2})


class JsonOptionsField(forms.JSONField):
    """JSON, whose error names the position."""

    def to_python(self, value: Any) -> Any:
        try:
            if isinstance(value, str) and value.strip():
                json.loads(value)
        except json.JSONDecodeError as error:
            raise forms.ValidationError(
                f"This is not JSON: line {error.lineno}, column {error.colno}: {error.msg}. "
                'Write an object such as {"max_running": 16}, with names in double quotes.'
            ) from None
        return super().to_python(value)


class ServedModelForm(forms.ModelForm):  # type: ignore[type-arg]
    project_ids = forms.JSONField(
        label="Projects",
        required=False,
        initial=list,
        help_text="The ids of the projects whose keys see and use the model, such as [1, 2]; "
        "empty: all keys.",
        widget=forms.TextInput(attrs={"size": 40, "spellcheck": "false", "class": "code"}),
    )
    options = JsonOptionsField(
        required=False,
        initial=dict,
        encoder=_IndentedEncoder,
        widget=forms.Textarea(
            attrs={"rows": 6, "cols": 80, "spellcheck": "false", "class": "vLargeTextField code"}
        ),
    )

    class Meta:
        model = ServedModel
        fields = (
            *("name", "folder", "device", "options", "project_ids"),
            *("num_replicas", "replica_devices", "is_loaded", "is_pinned", "idle_s"),
        )
        widgets = {
            "name": forms.TextInput(attrs={"size": 40, "spellcheck": "false"}),
            "folder": forms.TextInput(attrs={"size": 80, "spellcheck": "false", "class": "code"}),
            "device": DeviceInput(attrs={"size": 20}),
        }
        help_texts = _HELP_TEXTS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, text in (("options", _options_help), ("device", device_help)):
            if name in self.fields:  # a user who may only view has fewer fields
                self.fields[name].help_text = text()

    def _get_validation_exclusions(self) -> set[str]:
        """What is unchanged is not checked: a model whose folder is gone can be renamed."""
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]
        is_stored = self.instance.pk is not None
        return excluded | (set(self.fields) - set(self.changed_data) if is_stored else set())

    def clean_project_ids(self) -> Any:
        """An empty field means all projects."""
        return self.cleaned_data["project_ids"] or []

    def clean_options(self) -> Any:
        """An empty field means no options."""
        options = self.cleaned_data["options"]
        return {} if options is None else options


@admin.register(ServedModel)
class ServedModelAdmin(AuditedAdmin):
    form = ServedModelForm
    empty_text = "No model is served yet. Add one: all it takes is its folder and a name."
    list_display = ("name", "task", "state", "device", "folder", "short_error")
    list_filter = ("is_loaded", "task", "device")
    search_fields = ("name", "folder")
    list_select_related = ("engine",)
    readonly_fields = ("task", *_ENGINE_FIELDS, "created_at", "updated_at")
    actions = ("load", "unload", "self_test")

    def get_fieldsets(self, request: HttpRequest, obj: ServedModel | None = None) -> Any:
        """The engine's fields appear once the model exists."""
        settings = (None, {"fields": ServedModelForm.Meta.fields})
        if obj is None:
            return (settings,)
        engine = ("Engine", {"fields": ("task", *_ENGINE_FIELDS)})
        return (settings, engine, ("Dates", {"fields": (("created_at", "updated_at"),)}))

    @admin.display(description="state", ordering="engine__state")
    def state(self, model: ServedModel) -> SafeString:
        """The engine's state, or the change that the node has not made yet."""
        text = model.state_text.capitalize()
        return format_html('<span class="state state-{}">{}</span>', model.shown_state, text)

    @admin.display(description="last error")
    def short_error(self, model: ServedModel) -> str:
        return Truncator(model.status.reason or "-").chars(80)

    @admin.display(description="last error")
    def last_error(self, model: ServedModel) -> str:
        """What happened and what to do, and below the original words of OpenVINO."""
        return model.status.last_error or "-"

    @admin.display(description="last log lines")
    def log(self, model: ServedModel) -> SafeString:
        return format_html('<pre class="log">{}</pre>', engine_log_text(model.name))

    @admin.display(description="attempts")
    def attempts(self, model: ServedModel) -> str:
        status = model.status
        if not status.num_attempts:
            return "-"
        if status.next_attempt_at is None:
            return f"{status.num_attempts} of {status.max_attempts} failed"
        next_at = formats.localize(timezone.localtime(status.next_attempt_at))
        return f"{status.num_attempts} of {status.max_attempts} failed; the next is at {next_at}"

    @admin.display(description="requests that wait")
    def waiting(self, model: ServedModel) -> str:
        return model.waiting_text or "-"

    @admin.display(description="memory")
    def memory(self, model: ServedModel) -> str:
        return model.status.memory_text or "-"

    @admin.display(description="restarts")
    def num_restarts(self, model: ServedModel) -> int:
        return model.status.num_restarts

    @admin.action(description="Load selected models", permissions=["change"])
    def load(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        """Load what is not loaded, wake what is asleep, and try again what could not be loaded."""
        tried = [model for model in models if model.is_loaded and model.status.can_be_tried]
        for model in tried:
            registry.retry(model)
            self.log_change(request, model, "Tried again.")
        loaded = self._set_loaded(request, models, is_loaded=True)
        if names := ", ".join(sorted([*loaded, *(model.name for model in tried)])):
            messages.success(request, f"Loading {names}. Reload the page to see when it is ready.")
        else:
            messages.info(request, "There is nothing to load: each is loaded, or being loaded.")

    @admin.action(description="Unload selected models", permissions=["change"])
    def unload(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        """Ask the node to end the engines. Their running requests fail."""
        if names := ", ".join(self._set_loaded(request, models, is_loaded=False)):
            messages.success(
                request, f"Unloading {names}. Clients get an error until it is loaded."
            )
        else:
            messages.info(request, "There is nothing to unload: none of them is loaded.")

    @admin.action(description="Show known pictures to selected models", permissions=["change"])
    def self_test(self, request: HttpRequest, models: QuerySet[ServedModel]) -> None:
        """Ask the node to test the models. Each one that cannot be tested has a message."""
        for model in models:
            try:
                MODELS.action("self-test").run(model)
            except Conflict as error:
                messages.error(request, str(error))
            else:
                messages.success(
                    request, f"Testing {model}. A failure is on its page within a minute."
                )

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
        if change and "name" in changed:
            follow_name(form.initial["name"], obj.name)
            for warning in left_behind(form.initial["name"], obj.name):
                messages.warning(request, warning)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Name the models alone: the status of an engine is a row of Vinery's own."""
        _, counts, permissions, protected = super().get_deleted_objects(objs, request)
        own = {str(self.opts.verbose_name), str(self.opts.verbose_name_plural)}
        counts = {name: number for name, number in counts.items() if name in own}
        return [str(model) for model in objs], counts, permissions & own, protected

    def _set_loaded(
        self, request: HttpRequest, models: QuerySet[ServedModel], *, is_loaded: bool
    ) -> list[str]:
        """The names of the models that this changes."""
        changed = [model for model in models if model.is_loaded is not is_loaded]
        for model in changed:
            registry.load(model, is_loaded)
            self.log_change(request, model, "Loaded." if is_loaded else "Unloaded.")
        return [model.name for model in changed]


@admin.register(ModelAlias)
class ModelAliasAdmin(ResourceAdmin):
    resource = MODEL_ALIASES
    list_display = ["name", "models"]
    search_fields = ["name"]
    ordering = ["name"]

    @admin.display(description="models")
    def models(self, alias: ModelAlias) -> str:
        return targets_text(alias.targets)


def _options_help() -> SafeString:
    rows = format_html_join(
        "",
        "<tr><th scope=row><code>{}</code></th><td><code>{}</code></td><td>{}</td></tr>",
        ((each.name, each.default or "-", each.meaning) for each in option_documents()),
    )
    return format_html(
        "A JSON object with the options that differ from their defaults, such as "
        '<code>{{"max_running": 16}}</code>. After a change the engine serves until a new one has '
        "loaded. What only requests are read with, such as <code>defaults</code>, needs no new one."
        "<details class=options><summary>All options</summary><table><thead><tr><th>Option</th>"
        "<th>Default</th><th>Meaning</th></tr></thead><tbody>{}</tbody></table></details>",
        rows,
    )
