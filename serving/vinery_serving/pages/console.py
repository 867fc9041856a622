"""The console's page of served models, and the pages of their other names; both in Django's admin.

Users see names and states; administrators see what the engines do, load and unload models, and find
the page of each."""

from typing import Any

from django import forms
from django.http import QueryDict
from django.urls import reverse

from vinery_accounts.admin.base import register
from vinery_accounts.console.page import LivePage, at
from vinery_accounts.console.rows import ChangeRow, ConfirmPage, NewRow, RowForm
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.limits import prices_of
from vinery_serving.core.tasks import Task
from vinery_serving.models import registry
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.job_requests import MEASURABLE
from vinery_serving.models.job_rows import SpeedResult, bytes_text, newest_speeds
from vinery_serving.models.models import MODEL_NAME, ModelAlias, ServedModel
from vinery_serving.models.resource import MODEL_ALIASES, MODELS, targets_text


class TargetsField(forms.CharField):
    """Models with their weights, as on the command line: `qwen-a=90, qwen-b=10`."""

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return ", ".join(f"{name}={weight}" for name, weight in value.items())

    def to_python(self, value: Any) -> Any:
        """Return weights by names. Raises ValidationError for a wrong name or weight."""
        return dict(map(_target, (value or "").replace(",", " ").split()))


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
    field_order = ("name", "targets")


class _AliasPage(RowForm):
    needs = "is_superuser"
    resource = MODEL_ALIASES
    form_class = AliasForm
    note = (
        "Clients send the alias as model, and each request goes to one of its models. In force "
        "within a second."
    )

    def texts(self) -> dict[str, Any]:
        names = ", ".join(ServedModel.objects.values_list("name", flat=True))
        return {"intro": f"Served models: {names or 'none yet'}."}

    def row_address(self, row: ModelAlias) -> str:
        return reverse("console:models")


@at("models/aliases/new/", "alias-new")
class NewAlias(_AliasPage, NewRow):
    """`model=qwen-a` fills in the form."""

    heading, button = "Alias of models", "Save"
    done = "{row} is an alias now."

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        return self.make_form(data, initial={"targets": self.request.GET.get("model", "")[:128]})


@at("models/aliases/<int:row_id>/", "alias")
class ChangeAlias(_AliasPage, ChangeRow):
    def texts(self) -> dict[str, Any]:
        remove = reverse("console:alias-remove", args=[self.row.pk])
        return {**super().texts(), "heading": f"Alias {self.row}", "remove": remove}


@at("models/aliases/<int:row_id>/", "alias", "remove")
class RemoveAlias(ConfirmPage):
    resource = MODEL_ALIASES


def actions_of(model: ServedModel) -> list[str]:
    if not model.folder:
        return []
    if not model.is_loaded:
        return ["load"]
    retry = ["retry"] if model.status.has_failed else []
    wake = ["load"] if model.shown_state is ShownState.ASLEEP else []
    is_measured = model.shown_state in MEASURABLE and Task(model.task).is_generation
    bench = ["bench"] if is_measured else []
    test = ["self-test"] if model.takes_pictures else []
    return [*retry, *wake, "unload", *test, *bench]


def body_of(model: ServedModel) -> dict[str, Any]:
    """Return a model as the API does, after it was loaded by `MODELS.load`."""
    return dict(MODELS.serializer(model).data)


def _row(model: ServedModel, speed: SpeedResult | None, *, is_admin: bool) -> dict[str, Any]:
    """Return a model as the page shows it. Users see its name, task and state alone."""
    tokens_per_s = speed.value(1, "output_tokens_per_s") if speed else None
    engine = body_of(model)["engine"] if is_admin else {}
    actions = actions_of(model) if is_admin else []  # its own page has more
    num_bytes = engine.get("memory_bytes")
    return {
        "model": model,
        "engine": engine,
        "memory": bytes_text(num_bytes) if num_bytes else "",
        "speed": f"{tokens_per_s:.1f} tokens/s" if tokens_per_s else "",
        "measured_at": speed and speed.measured_at,
        "job": None if model.folder else model.folder_job,
        "actions": [each for each in actions if each in ("load", "unload", "retry")],
    }


@at("models/", "models")
class Models(LivePage):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_admin = self.access.is_superuser
        models = registry.models_seen_by(self.access)
        names = {model.name for model in models}
        aliases = ModelAlias.objects.all()
        speeds, prices = newest_speeds() if is_admin else {}, prices_of(names)
        return super().get_context_data(**kwargs) | {
            "is_admin": is_admin,
            "aliases": [
                (alias, targets_text(seen))
                for alias in aliases
                if (seen := {name: alias.targets[name] for name in alias.targets if name in names})
            ],
            "rows": [
                _row(model, speeds.get(model.pk), is_admin=is_admin)
                | {"price": prices.get(model.name, "")}
                for model in (MODELS.load(models) if is_admin else models)
            ],
        }


register(MODELS, is_of_platform=True)
register(MODEL_ALIASES)
