"""The console's forms that add and change a served model, with the fields of the resource."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, ClassVar, Final, get_args

from django import forms

from vinery_accounts.models import Project
from vinery_accounts.resources.fields import serializer_of
from vinery_accounts.resources.forms import ParametersForm, ResourceForm, form_field
from vinery_serving.models import job_requests
from vinery_serving.models.convert.options import ConvertOptions, Precision
from vinery_serving.models.folder_options import shipped_models
from vinery_serving.models.job_requests import Conversion
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS
from vinery_serving.pages.option_fields import DeviceInput, OptionsField, device_help

_FIRST: Final[tuple[str, ...]] = ("name", "folder", "device")


class ModelForm(ResourceForm):
    """The fields of a model. The engine options are folded."""

    rare: ClassVar[tuple[str, ...]] = ("options",)
    field_order: tuple[str, ...] = _FIRST
    options = OptionsField(required=False, label="Engine options")

    def __init__(self, names: list[str], data: Any, **more: Any) -> None:
        super().__init__(MODELS, names, data, **more)
        if "project_ids" in self.fields:
            self.fields["project_ids"] = _project_field(self.initial.get("project_ids", []))
        if "device" in self.fields:
            self.fields["device"].widget = DeviceInput({"autocomplete": "off"})
            self.fields["device"].help_text = device_help()

    @property
    def columns(self) -> dict[str, Any]:
        """An empty number of replicas is the default."""
        columns = super().columns
        if columns.get("num_replicas", 1) is None:
            columns["num_replicas"] = 1
        return columns

    @property
    def num_options(self) -> int:
        """How many options differ from their defaults, as they are shown."""
        return sum(1 for text in self["options"].value().values() if text)


def _project_field(ids: list[int]) -> forms.Field:
    """`ids` are those that the model has. One that no project has any more stays a choice: without
    it the model would be for all keys."""
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
    """All fields of a stored model but those that actions change, and its folder while a job makes
    it."""

    def __init__(self, model: ServedModel, data: Any) -> None:
        names = [name for name in MODELS.writable() if name != "is_loaded"]
        if _awaits_folder(model) or (data is not None and "folder" not in data):
            names.remove("folder")
        initial = {name: getattr(model, name) for name in names}
        super().__init__(names, data, initial=initial)
        if "folder" in self.fields:
            self.fields["folder"].required = bool(model.folder)


def _awaits_folder(model: ServedModel) -> bool:
    job = None if model.folder else model.folder_job
    return job is not None and job.is_unfinished


class FilesForm(ParametersForm):
    """The parameters of a job that makes files for a name: of a new model, or of one that gets them
    instead of its own."""

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
            self.fields["device"].widget = DeviceInput({"autocomplete": "off"})
            self.fields["device"].help_text = device_help()
        if "precision" in self.fields:
            assert isinstance(self.fields["precision"], forms.ChoiceField)
            choices = [("", "as checked"), *((each, each) for each in get_args(Precision))]
            self.fields["precision"].choices = choices
        self.order_fields(["repository", "folder", "sha256", "name", "replaces"])

    num_options = ModelForm.num_options

    def check_name(self, name: str) -> None:
        """Raises ValidationError for the name of a model that should stay as it is."""
        is_served = ServedModel.objects.filter(name=name).exists()
        if is_served and not self.cleaned_data.get("replaces"):
            raise forms.ValidationError({"name": "Another model is served under this name."})


class ConvertForm(FilesForm):
    """A checkpoint on this server, and what becomes of it. The options of the conversion are
    folded."""

    rare = tuple(each.name for each in fields(ConvertOptions) if each.name != "precision")

    def __init__(self, data: Any, **more: Any) -> None:
        super().__init__(Conversion, ["folder", "name", "device", "is_loaded"], data, **more)
        options = serializer_of(ConvertOptions)().fields
        for name, each in options.items():
            self.fields[name] = form_field(each)
            self.fields[name].required = False
        self.initial = {"precision": ConvertOptions.precision, **self.initial}
        self.fields["name"].required = False
        self.fields["name"].help_text += " Empty: named after the folder."
        self.fields["folder"].widget.attrs["list"] = "checkpoints"
        self.order_fields(["folder", "precision", "name"])

    @property
    def changed_options(self) -> dict[str, Any]:
        """The options of a valid form that differ from their defaults."""
        values = {each.name: self.cleaned_data.get(each.name) for each in fields(ConvertOptions)}
        return {name: value for name, value in values.items() if value not in (None, "", False)}

    def checkpoints(self) -> list[str]:
        """What the field of the folder suggests."""
        return job_requests.pulled_checkpoints()


class FolderForm(ModelForm):
    """A model in a folder of the server."""

    name = forms.CharField(
        max_length=128,
        required=False,
        help_text="The name that clients send as model. Empty: that of the folder.",
    )

    def __init__(self, data: Any, **more: Any) -> None:
        initial = {"device": "CPU", "num_replicas": 1, "is_loaded": True, **more.pop("initial", {})}
        super().__init__(MODELS.writable(), data, initial=initial, **more)
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
