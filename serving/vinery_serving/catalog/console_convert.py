"""The console's page that converts a checkpoint, with a field for each option of a conversion."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpResponse, QueryDict
from django.urls import path

from vinery_accounts.console.page import FormPage
from vinery_accounts.resources.fields import id_of
from vinery_serving.catalog import conversions
from vinery_serving.catalog.console_add_page import AddPage
from vinery_serving.catalog.model_form import NewFilesForm
from vinery_serving.catalog.models import ServedModel
from vinery_serving.convert.lines import TASKS
from vinery_serving.convert.options import CONVERT_TYPES, Precision, documented_options

_FIRST: Final = ("folder", "precision", "name", "replaces", "device", "is_loaded")
_CHOICES: Final[Mapping[str, list[tuple[str, str]]]] = {
    "precision": [(each, each) for each in get_args(Precision)],
    "task": [("", "as config.json shows"), *((each, each) for each in TASKS)],
}
_FIELDS: Final[Mapping[type, type[forms.Field]]] = {
    bool: forms.BooleanField,
    int: forms.IntegerField,
    float: forms.FloatField,
}
_LABELS: Final = {
    "sym": "Symmetric",
    "all_layers": "All layers",
    "awq": "AWQ",
    "trust_remote_code": "Run code of the checkpoint",
    "memory_limit_mb": "Memory limit in MB",
}


class ConvertForm(NewFilesForm):
    """A checkpoint on this server, and what becomes of it."""

    rare = tuple(name for name in CONVERT_TYPES if name != "precision")
    field_order = _FIRST
    options = None  # type: ignore[assignment]  # of the engine: they are set when it is converted
    folder = forms.CharField(
        max_length=1024,
        label="Folder of the checkpoint",
        help_text="Absolute path, on this server, of a folder with config.json and weights, such "
        "as safetensors.",
        widget=forms.TextInput(
            {"list": "checkpoints", "autocomplete": "off", "spellcheck": "false"}
        ),
    )

    def __init__(self, data: Any, **more: Any) -> None:
        initial = {"device": "CPU", "is_loaded": True, "precision": "int8"}
        initial |= more.pop("initial", {})
        super().__init__(["name", "device", "is_loaded"], data, initial=initial, **more)
        for name, meaning in documented_options():
            self.fields[name] = _field(name, f"{meaning[:1].upper()}{meaning[1:]}.")
        self.fields["name"].required = False
        self.fields["name"].help_text += " Empty: that of the folder."
        self.fields["is_loaded"].label = "Load it when it is converted"
        self.order_fields(_FIRST)

    @property
    def values(self) -> dict[str, Any]:
        """The options of a valid form that differ from their defaults."""
        values = {name: self.cleaned_data.get(name) for name in CONVERT_TYPES}
        return {name: value for name, value in values.items() if value not in (None, "", False)}

    def checkpoints(self) -> list[str]:
        """What the field of the folder suggests."""
        return conversions.pulled_checkpoints()


def _field(name: str, text: str) -> forms.Field:
    label = _LABELS.get(name, name.replace("_", " ").capitalize())
    details: dict[str, Any] = {"label": label, "help_text": text, "required": False}
    if name in _CHOICES:
        details["required"] = name == "precision"
        return forms.ChoiceField(choices=_CHOICES[name], **details)
    return _FIELDS[CONVERT_TYPES[name]](**details)


class Convert(AddPage, FormPage):
    """`/console/models/add/convert/`: `model=7` converts the checkpoint of a model again."""

    way = "convert"
    template_name = "console/model_add_convert.html"

    def form_of(self, data: QueryDict | None) -> ConvertForm:
        wanted = id_of(self.request.GET.get("model", ""))
        model = None if wanted is None else ServedModel.objects.filter(pk=wanted).first()
        if model is None:
            return ConvertForm(data)
        initial = {"folder": conversions.checkpoint_of(model), "name": model.name}
        return ConvertForm(data, initial={**initial, "device": model.device, "replaces": True})

    def save(self, form: ConvertForm) -> HttpResponse:
        """Raises ValidationError for a checkpoint or options with which nothing can begin."""
        columns, folder = form.columns, Path(form.cleaned_data["folder"].strip())
        if not folder.is_absolute():
            raise ValidationError({"folder": "Write an absolute path, which begins with /."})
        name = columns["name"] or folder.name
        form.check_name(name)
        job = conversions.begin(
            folder, name, form.values, device=columns["device"], load=columns["is_loaded"]
        )
        return self.to_job(job, "Converting")


urlpatterns = [
    path("models/add/convert/", Convert.as_view(), name="model-add-convert"),
]
