"""The form in which administrators describe a served model."""

from __future__ import annotations

import json
from typing import Any, Final

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from serving.catalog.models import ServedModel
from serving.engine.config import option_documents

_DEVICES: Final = ("CPU", "GPU", "GPU.0", "GPU.1")
_NAME_HELP: Final = "What clients send as <code>model</code>."
_FOLDER_HELP: Final = (
    "Absolute path, on this server, of the folder that holds <code>openvino_model.xml</code>."
)
_DEVICE_HELP: Final = (
    "OpenVINO's name of a device: CPU, GPU, or GPU.1 for the second GPU. With a device that this "
    "server lacks the model fails to load, and its last error says so."
)
_LOAD_HELP: Final = (
    "An engine runs for it as long as this is ticked. Saving returns at once; loading takes "
    "seconds to minutes, and the list of served models says how far it is."
)


class _Indented(json.JSONEncoder):
    """JSON for people: one line for each key."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "indent": 2})


class DeviceInput(forms.TextInput):
    """Free text, because devices differ by machine, with the usual ones offered."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """The field, and the list that a browser offers with it."""
        list_id = f"{name}_choices"
        field = super().render(name, value, {**(attrs or {}), "list": list_id}, renderer)
        options = format_html_join("", '<option value="{}">', ((each,) for each in _DEVICES))
        return format_html('{}<datalist id="{}">{}</datalist>', field, list_id, options)


class ServedModelForm(forms.ModelForm):  # type: ignore[type-arg]
    """Long paths get long fields, options a page of their own words."""

    options = forms.JSONField(
        required=False,
        initial=dict,
        encoder=_Indented,
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
        help_texts = {
            "name": _NAME_HELP,
            "folder": _FOLDER_HELP,
            "device": _DEVICE_HELP,
            "is_loaded": _LOAD_HELP,
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "options" in self.fields:  # those who may only view have none
            self.fields["options"].help_text = _options_help()

    def clean_options(self) -> Any:
        """An empty field means no options."""
        options = self.cleaned_data["options"]
        return {} if options is None else options


def _options_help() -> SafeString:
    rows = format_html_join(
        "",
        "<tr><th scope=row><code>{}</code></th><td><code>{}</code></td><td>{}</td></tr>",
        ((each.name, each.default, each.meaning) for each in option_documents()),
    )
    return format_html(
        "A JSON object with the options that shall differ from their defaults, such as "
        '<code>{{"max_running": 16}}</code>. A change starts the engine anew.'
        "<details class=options><summary>All options</summary><table><thead><tr><th>Option</th>"
        "<th>Default</th><th>Meaning</th></tr></thead><tbody>{}</tbody></table></details>",
        rows,
    )
