"""The console's forms that add and change a served model, with the fields of the resource, and with
one input for each engine option."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Final, get_args

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from vinery_accounts.access.access import Access
from vinery_accounts.models import Project
from vinery_accounts.resources.fields import serializer_of
from vinery_accounts.resources.forms import ParametersForm, ResourceForm, form_field
from vinery_serving.core.tasks import Task
from vinery_serving.engine.options import (
    PURPOSES,
    OptionDocument,
    option_documents,
    option_value,
    tasks_of_option,
)
from vinery_serving.models import devices
from vinery_serving.models.convert.checkpoint import ConvertOptions, Precision
from vinery_serving.models.devices import Device
from vinery_serving.models.job_requests import Conversion
from vinery_serving.models.models import ServedModel, shipped_models

_PREFIX: Final = "option."
_OTHERS: Final = "Others"
_UNKNOWN: Final = "no option of this version: empty the field to remove it"


def known_devices() -> Sequence[Device]:
    known = devices.read(Path(settings.VINERY_RUN_DIR))
    return known.devices if known else ()


def suggest_devices(form: forms.Form) -> None:
    known = ", ".join(map(str, known_devices())) or "not known yet"
    field = form.fields["device"]
    field.widget.attrs |= {"autocomplete": "off", "list": "devices"}
    field.help_text = f"The devices of this machine: {known}. AUTO:GPU,CPU names several."


class OptionsWidget(forms.Widget):
    """An input for each option, by purpose. Its value is a mapping from names to texts."""

    template_name = "console/options.html"
    use_fieldset = True
    task: Task | None = None  # options of other tasks are shown if they have a value

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        return {"groups": list(_groups(value or {}, self.task))}

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return render_to_string(self.template_name, self.get_context(name, value, attrs))

    def value_from_datadict(self, data: Any, files: Any, name: str) -> dict[str, str]:
        found = {key.removeprefix(_PREFIX): data[key] for key in data if key.startswith(_PREFIX)}
        return {option: text for option, text in found.items() if text}

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return not any(key.startswith(_PREFIX) for key in data)


class OptionsField(forms.Field):
    """The options of a model as texts. Members of a group are written as `group.member`."""

    widget = OptionsWidget

    def to_python(self, value: Any) -> dict[str, Any]:
        """Raises ValidationError for a member of an option that is no group."""
        options: dict[str, Any] = {}
        for name, text in sorted((value or {}).items()):  # a group before its members
            if not text.strip():
                continue
            group, dot, member = name.partition(".")
            if not dot:
                options[name] = option_value(text)
            elif isinstance(members := options.setdefault(group, {}), dict):
                members[member] = option_value(text)
            else:
                raise ValidationError(f"Empty the field {group}, or {name}.")
        return options

    def has_changed(self, initial: Any, data: Any) -> bool:
        return self.to_python(initial) != self.to_python(data)


def _groups(texts: Mapping[str, str], task: Task | None) -> Iterator[dict[str, Any]]:
    """Yield the purposes with their inputs. Those with a value are open."""
    known = {each.name: each for each in option_documents()}
    inputs: dict[str, list[dict[str, Any]]] = {purpose: [] for purpose in PURPOSES.values()}
    for name in (*known, *(texts.keys() - known.keys())):
        option = name.partition(".")[0]
        if texts.get(name) or _is_for(option, task):
            document = known.get(name, OptionDocument(name, "", _UNKNOWN))
            purpose = PURPOSES.get(option, _OTHERS)
            inputs.setdefault(purpose, []).append(_input(document, texts.get(name, "")))
    for purpose, members in inputs.items():
        if members:
            num_set = sum(each["value"] != "" for each in members)
            yield {"purpose": purpose, "inputs": members, "num_set": num_set}


def _is_for(option: str, task: Task | None) -> bool:
    if task is None:
        return True
    has_effect = PURPOSES.get(option) != "Pictures" or task is Task.VISION
    return has_effect and task in tasks_of_option(option)


def _input(document: OptionDocument, text: str) -> dict[str, Any]:
    """Return an option as the form shows it. An empty value is the default."""
    default = document.default
    return {
        "name": document.name,
        "default": default,
        "meaning": document.meaning,
        "value": text,
        "is_switch": default in ("true", "false"),
        "differs": text != "" and json.dumps(option_value(text)) != default,
    }


def _texts(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    known = {each.name for each in option_documents()}
    for name, value in options.items():
        members = {f"{name}.{each}" for each in value} if isinstance(value, dict) else set()
        if members and members <= known:
            yield from ((f"{name}.{each}", _text(inner)) for each, inner in value.items())
        else:
            yield name, _text(value)


def _text(value: Any) -> str:
    """Return a text that `option_value` reads as this value."""
    is_plain = isinstance(value, str) and option_value(value) == value and value != ""
    return value if is_plain else json.dumps(value, ensure_ascii=False)


class ModelForm(ResourceForm):
    rare: ClassVar[tuple[str, ...]] = ("options",)
    field_order: tuple[str, ...] = ("name", "folder", "device")
    options = OptionsField(required=False, label="Engine options")

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.initial["options"] = dict(_texts(self.initial.get("options", {})))
        self.fields["project_ids"] = _project_field(self.initial.get("project_ids", []))
        suggest_devices(self)

    @property
    def columns(self) -> dict[str, Any]:
        """An empty number of replicas is the default."""
        columns = super().columns
        if columns.get("num_replicas", 1) is None:
            columns["num_replicas"] = 1
        return columns


def _project_field(ids: list[int]) -> forms.Field:
    """A removed project of `ids` stays a choice: without it the model would be for all keys."""
    known = {project.pk: str(project) for project in Project.objects.order_by("name", "pk")}
    removed = {each: f"removed project {each}" for each in ids if each not in known}
    return forms.TypedMultipleChoiceField(
        label="Projects",
        required=False,
        coerce=int,
        choices=[*known.items(), *removed.items()],
        help_text="Only keys of these projects see and use the model. None chosen: all keys.",
    )


class ChangedModelForm(ModelForm):
    """All fields of a stored model but `is_loaded`, and `folder` while a job makes it."""

    def __init__(self, resource: Any, access: Access, data: Any, _: Any, row: ServedModel) -> None:
        left_out = {"is_loaded"}
        job = None if row.folder else row.folder_job
        if (job and job.is_unfinished) or (data is not None and "folder" not in data):
            left_out.add("folder")
        names = [name for name in resource.writable() if name not in left_out]
        super().__init__(resource, access, data, names, row)
        self.fields["options"].widget.task = Task(row.task) if row.folder else None
        if "folder" in self.fields:
            self.fields["folder"].required = bool(row.folder)


class FilesForm(ParametersForm):
    """The parameters of a job that makes the files of a new model, or replaces those of a model."""

    rare: ClassVar[tuple[str, ...]] = ("options",)
    replaces = forms.BooleanField(
        required=False,
        label="Replace the files of the model of this name",
        help_text="If there is one: it serves its present files until the new ones are ready.",
    )
    options = OptionsField(required=False, label="Engine options")

    def __init__(self, parameters: Any, names: Iterable[str], data: Any, **more: Any) -> None:
        super().__init__(serializer_of(parameters), names, data, **more)
        self.fields["is_loaded"].label = "Load it when it is there"
        if "options" not in self._defaults:
            del self.fields["options"]
        if "device" in self.fields:
            suggest_devices(self)
        if "precision" in self.fields:
            assert isinstance(self.fields["precision"], forms.ChoiceField)
            choices = [("", "as checked"), *((each, each) for each in get_args(Precision))]
            self.fields["precision"].choices = choices
        self.order_fields(["repository", "folder", "sha256", "name", "replaces"])

    def check_name(self, name: str) -> None:
        """Raises ValidationError for the name of a model that should stay as it is."""
        is_served = ServedModel.objects.filter(name=name).exists()
        if is_served and not self.cleaned_data.get("replaces"):
            raise forms.ValidationError({"name": "Another model is served under this name."})


class ConvertForm(FilesForm):
    """A checkpoint on this server, and the model that gets the result. Options are folded."""

    rare = tuple(each.name for each in fields(ConvertOptions) if each.name != "precision")

    def __init__(self, data: Any, **more: Any) -> None:
        super().__init__(Conversion, ["folder", "name", "device", "is_loaded"], data, **more)
        for name, each in serializer_of(ConvertOptions)().fields.items():
            self.fields[name] = form_field(each)
            self.fields[name].required = False
        self.initial = {"precision": ConvertOptions.precision, **self.initial}
        self.fields["name"].required = False
        self.fields["name"].help_text += " Empty: named after the folder."
        self.order_fields(["folder", "precision", "name"])

    @property
    def changed_options(self) -> dict[str, Any]:
        """The options of a valid form that differ from their defaults."""
        values = {each.name: self.cleaned_data.get(each.name) for each in fields(ConvertOptions)}
        return {name: value for name, value in values.items() if value not in (None, "", False)}


class FolderForm(ModelForm):
    name = forms.CharField(
        max_length=128,
        required=False,
        help_text="The name that clients send as model. Empty: that of the folder.",
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, initial={"device": "CPU", "num_replicas": 1, "is_loaded": True})
        shipped = ", ".join(shipped_models())
        self.fields["folder"].help_text = (
            "Absolute path, on this server, of the folder that holds openvino_model.xml, or the "
            f"name of a model that ships with Vinery: {shipped}."
        )
        self.fields["is_loaded"].label = "Load it now"

    @property
    def columns(self) -> dict[str, Any]:
        columns = super().columns
        folder = columns["folder"].rstrip("/")
        return columns | {"name": columns["name"] or folder.rpartition("/")[2]}
