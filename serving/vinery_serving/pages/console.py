"""The console's page of served models, and the pages of their other names; both in Django's admin.

Users see names and states; administrators see what the engines do, load and unload models, and find
the page of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path, reverse

from vinery_accounts.admin.base import register
from vinery_accounts.console.page import FormPage, LivePage
from vinery_accounts.console.rows import ConfirmPage, Question, RowPage
from vinery_accounts.resources.forms import ResourceForm
from vinery_serving.models import registry
from vinery_serving.models.aliases import MODEL_NAME, ModelAlias
from vinery_serving.models.job_resource import bytes_text, progress_text
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODEL_ALIASES, MODELS, targets_text
from vinery_serving.pages import console_add, console_model
from vinery_serving.pages.console_add import AdministratorPage
from vinery_serving.pages.model_facts import actions_of, body_of


class TargetsField(forms.CharField):
    """Models with their weights, as on the command line: `qwen-a=90, qwen-b=10`."""

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return ", ".join(f"{name}={weight}" for name, weight in value.items())

    def to_python(self, value: Any) -> Any:
        """Return weights by names. Raises ValidationError for what is no name or no weight."""
        words = (value or "").replace(",", " ").split()
        return dict(map(_target, words))


def _target(word: str) -> tuple[str, int]:
    name, separator, weight = word.partition("=")
    MODEL_NAME(name)
    if separator and not (weight.isascii() and weight.isdecimal() and len(weight) < 10):
        raise forms.ValidationError(f"Write {name}=90: a weight is a whole number.")
    return name, int(weight) if separator else 1


class AliasForm(ResourceForm):
    targets = TargetsField(
        label="Models",
        help_text="One model, or several with weights: qwen-a=90, qwen-b=10 gives one request in "
        "ten to qwen-b. A model with the weight 0 answers only if no other can.",
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, data: QueryDict | None, **more: Any) -> None:
        super().__init__(MODEL_ALIASES, ["name", "targets"], data, **more)
        self.order_fields(["name", "targets"])


class NewAlias(AdministratorPage, FormPage):
    """`/console/models/aliases/new/`: `model=qwen-a` is what the form begins with."""

    heading = "Another name for models"

    def texts(self) -> dict[str, Any]:
        names = ", ".join(ServedModel.objects.values_list("name", flat=True))
        return {
            "intro": f"Served models: {names or 'none yet'}.",
            "note": "Clients send another name as model, and each request goes to one of its "
            "models. In force within a second.",
        }

    def form_of(self, data: QueryDict | None) -> AliasForm:
        return AliasForm(data, initial={"targets": self.request.GET.get("model", "")[:128]})

    def save(self, form: AliasForm) -> HttpResponse:
        alias = MODEL_ALIASES.create(self.access, form.columns)
        messages.success(self.request, f"{alias} is another name now.")
        return redirect("console:models")


class ChangeAlias(RowPage, NewAlias):
    """`/console/models/aliases/<id>/`."""

    resource = MODEL_ALIASES

    def texts(self) -> dict[str, Any]:
        remove = reverse("console:alias-remove", args=[self.row.pk])
        return {**super().texts(), "heading": f"Another name: {self.row}", "remove": remove}

    def form_of(self, data: QueryDict | None) -> AliasForm:
        return AliasForm(data, initial={"name": self.row.name, "targets": self.row.targets})

    def save(self, form: AliasForm) -> HttpResponse:
        alias = MODEL_ALIASES.change(self.access, self.row, form.columns)
        messages.success(self.request, f"{alias} is changed.")
        return redirect("console:models")


class RemoveAlias(ConfirmPage):
    """`/console/models/aliases/<id>/remove/`."""

    name = "models"
    resource = MODEL_ALIASES
    does = "remove"
    questions = {
        "remove": Question(
            "Remove the name {row}?",
            "Requests for it get 404 then. Its models stay.",
            "Remove",
            "{row} is no name any more.",
        )
    }


# -- Models

_OF_USERS: Final = ("Model", "Task", "State")
_OF_ADMINISTRATORS: Final = (*_OF_USERS, "Device", "#Running", "#Waiting", "#Memory")
# Of the page of a model, too, which has more of them.
_ACTIONS: Final = frozenset({"load", "unload", "retry"})


@dataclass(frozen=True, slots=True)
class Row:
    """A model as the page shows it to administrators; users see its name, task and state alone."""

    model: ServedModel
    engine: Mapping[str, Any]

    @property
    def num_running(self) -> int | None:
        return self.engine.get("num_running")

    @property
    def num_waiting(self) -> int | None:
        return self.engine.get("num_waiting")

    @property
    def memory(self) -> str:
        num_bytes = self.engine.get("memory_bytes")
        return bytes_text(num_bytes) if num_bytes else ""

    @property
    def progress(self) -> str:
        """What the job does that makes the folder; empty: there is none."""
        job = None if self.model.folder else self.model.folder_job
        return progress_text(job) if job else ""

    @property
    def actions(self) -> list[str]:
        return [name for name in actions_of(self.model) if name in _ACTIONS]


class Models(LivePage):
    """`/console/models/`."""

    name = "models"
    template_name = "console/models.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_admin = self.access.is_superuser
        models = registry.models_seen_by(self.access)
        names = {model.name for model in models}
        aliases = ModelAlias.objects.all()
        return super().get_context_data(**kwargs) | {
            "is_admin": is_admin,
            "aliases": [
                (alias, targets_text(seen))
                for alias in aliases
                if (seen := {name: alias.targets[name] for name in alias.targets if name in names})
            ],
            "rows": [
                Row(model, body_of(model)["engine"] if is_admin else {})
                for model in (MODELS.load(models) if is_admin else models)
            ],
            "columns": (*_OF_ADMINISTRATORS, "Reason", "") if is_admin else _OF_USERS,
        }


urlpatterns = [
    path("models/", Models.as_view(), name="models"),
    *console_add.urlpatterns,
    path("models/aliases/new/", NewAlias.as_view(), name="alias-new"),
    path("models/aliases/<int:row_id>/", ChangeAlias.as_view(), name="alias"),
    path("models/aliases/<int:row_id>/remove/", RemoveAlias.as_view(), name="alias-remove"),
    *console_model.urlpatterns,
]

register(MODELS, is_of_platform=True)
register(MODEL_ALIASES)
