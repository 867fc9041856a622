"""The console's pages that give models other names, change them and remove them."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path, reverse

from vinery_accounts.console.page import FormPage
from vinery_accounts.console.rows import ConfirmPage, Question, RowPage
from vinery_accounts.resources.forms import ResourceForm
from vinery_serving.models.aliases import MODEL_NAME
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODEL_ALIASES
from vinery_serving.pages.console_add import AdministratorPage


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
    """A name and the models that it stands for."""

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


urlpatterns = [
    path("models/aliases/new/", NewAlias.as_view(), name="alias-new"),
    path("models/aliases/<int:row_id>/", ChangeAlias.as_view(), name="alias"),
    path("models/aliases/<int:row_id>/remove/", RemoveAlias.as_view(), name="alias-remove"),
]
