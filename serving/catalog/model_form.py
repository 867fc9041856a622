"""The console's forms that add and change a served model, with the fields of the resource."""

from typing import Any, Final

from django import forms

from vinery_accounts.resources.forms import ResourceForm
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.option_fields import DeviceInput, OptionsField, device_help
from vinery_serving.catalog.resource import MODELS
from vinery_serving.catalog.shipped import shipped_models

_FIRST: Final = ("name", "folder", "device")


class ModelForm(ResourceForm):
    """The fields of a model. The engine options are folded."""

    rare = ("options",)
    field_order = _FIRST
    options = OptionsField(required=False, label="Engine options")

    def __init__(self, names: list[str], data: Any, **more: Any) -> None:
        super().__init__(MODELS, names, data, **more)
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


class ChangedModelForm(ModelForm):
    """All fields of a stored model but those that actions change."""

    def __init__(self, model: ServedModel, data: Any) -> None:
        names = [name for name in MODELS.writable() if name != "is_loaded"]
        initial = {name: getattr(model, name) for name in names}
        super().__init__(names, data, initial=initial)
        self.fields["folder"].required = bool(model.folder)


class PullForm(ModelForm):
    """How a model of a hub is served. The page has what is pulled."""

    name = forms.CharField(max_length=128, help_text="The name that clients send as `model`.")
    replaces = forms.BooleanField(
        required=False,
        label="Replace the files of the model of this name",
        help_text="If there is one: it serves its present files until the new ones are ready.",
    )

    def __init__(self, data: Any, **more: Any) -> None:
        super().__init__(["name", "options", "is_loaded"], data, **more)
        self.fields["is_loaded"].label = "Load it when it is there"

    def clean(self) -> dict[str, Any]:
        """Raises ValidationError for the name of a model that should stay as it is."""
        cleaned = super().clean() or self.cleaned_data
        is_served = ServedModel.objects.filter(name=cleaned.get("name", "")).exists()
        if is_served and not cleaned.get("replaces"):
            raise forms.ValidationError({"name": "Another model is served under this name."})
        return cleaned


class FolderForm(ModelForm):
    """A model in a folder of the server."""

    name = forms.CharField(
        max_length=128,
        required=False,
        help_text="The name that clients send as `model`. Empty: that of the folder.",
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
