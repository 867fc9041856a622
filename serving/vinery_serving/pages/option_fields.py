"""Fields of forms for a model's device and its engine options: one input for each option."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from vinery_serving.engine.option_parsing import option_documents
from vinery_serving.models import devices
from vinery_serving.models.devices import Device

_PREFIX: Final = "option."
_UNKNOWN: Final = "no option of this version: empty the field to remove it"


class DeviceInput(forms.TextInput):
    """A text field that suggests the devices of this machine. Several can be combined."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        list_id = f"{name}_choices"
        field = super().render(name, value, {**(attrs or {}), "list": list_id}, renderer)
        rows = ((each.name, each.full_name) for each in known_devices())
        options = format_html_join("", '<option value="{}">{}</option>', rows)
        return format_html('{}<datalist id="{}">{}</datalist>', field, list_id, options)


def known_devices() -> Sequence[Device]:
    known = devices.read(Path(settings.VINERY_RUN_DIR))
    return known.devices if known else ()


def device_help() -> str:
    known = ", ".join(map(str, known_devices())) or "not known yet"
    return f"The devices of this machine: {known}. AUTO:GPU,CPU names several."


@dataclass(frozen=True, slots=True)
class OptionInput:
    """One option, as the form shows it. An empty value is the default."""

    name: str
    default: str
    meaning: str
    value: str

    @property
    def is_switch(self) -> bool:
        return self.default in ("true", "false")


class SentTexts(dict[str, str]):
    """What a form has sent, by the names of options."""


class OptionsWidget(forms.Widget):
    """An input for each option. Its value is a mapping from names to texts."""

    template_name = "console/options.html"
    use_fieldset = True

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        return {"inputs": list(_inputs(value or {}))}

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return render_to_string(self.template_name, self.get_context(name, value, attrs))

    def value_from_datadict(self, data: Any, files: Any, name: str) -> SentTexts:
        sent = {key.removeprefix(_PREFIX): data[key] for key in data if key.startswith(_PREFIX)}
        return SentTexts(sent)

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return not self.value_from_datadict(data, files, name)


class OptionsField(forms.Field):
    """The options of a model. Members of a group are written as `group.member`."""

    widget = OptionsWidget

    def prepare_value(self, value: Any) -> dict[str, str]:
        """Return the texts of stored options; those that were sent stay as they are."""
        if isinstance(value, SentTexts):
            return value
        known = {each.name for each in option_documents()}
        return dict(_texts(value or {}, known))

    def to_python(self, value: Any) -> dict[str, Any]:
        """Raises ValidationError for a member of what is no group."""
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
        return bool((initial or {}) != self.to_python(data))


def option_value(text: str) -> Any:
    """Return the value that a text means: JSON where it is valid JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _inputs(texts: Mapping[str, str]) -> Iterator[OptionInput]:
    documents = option_documents()
    for name, default, meaning in documents:
        yield OptionInput(name, default, meaning, texts.get(name, ""))
    for name in texts.keys() - {each.name for each in documents}:
        yield OptionInput(name, "", _UNKNOWN, texts[name])


def _texts(options: Mapping[str, Any], known: set[str]) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        members = {f"{name}.{each}" for each in value} if isinstance(value, dict) else set()
        if members and members <= known:
            yield from ((f"{name}.{each}", _text(inner)) for each, inner in value.items())
        else:
            yield name, _text(value)


def _text(value: Any) -> str:
    """Return what `option_value` reads as this value."""
    is_plain = isinstance(value, str) and option_value(value) == value and value != ""
    return value if is_plain else json.dumps(value, ensure_ascii=False)
