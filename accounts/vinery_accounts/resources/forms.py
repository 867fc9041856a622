"""Django form fields from the fields of serializers: one text for the API and for pages."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db.models import QuerySet
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from rest_framework import serializers
from rest_framework.fields import empty

from vinery_accounts.access.access import Access
from vinery_accounts.models.limits import check_percents
from vinery_accounts.resources.base import Resource
from vinery_accounts.resources.fields import VisibleRelatedField, id_of

_OFF = "off"
_LABELS: Final = {"Organization": "Organisation"}


class CommaField(forms.CharField):
    """A list of names, separated by commas."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return [word.strip() for word in (value or "").split(",") if word.strip()]


class NumbersField(CommaField):
    """Whole numbers, separated by commas."""

    max_digits, wrong = 9, "Give whole numbers, separated by commas."

    def to_python(self, value: Any) -> Any:
        words = super().to_python(value)
        if not all(id_of(word) is not None and len(word) <= self.max_digits for word in words):
            raise ValidationError(self.wrong)
        return [int(word) for word in words]


class SuggestingInput(forms.TextInput):
    """A text that the browser completes from `values`."""

    def __init__(self, values: Iterable[str], attrs: Mapping[str, Any]) -> None:
        super().__init__({**attrs})
        self.values = tuple(values)

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        listed = f"{name}-values"
        text = super().render(name, value, {**(attrs or {}), "list": listed}, renderer)
        options = format_html_join("", '<option value="{}"></option>', ((v,) for v in self.values))
        return format_html('{}<datalist id="{}">{}</datalist>', text, listed, options)


class PercentsField(NumbersField):
    """Percentages, separated by commas; `off` for none; empty for those of the platform."""

    max_digits, wrong = 3, "Give whole percentages, separated by commas, or off."

    def __init__(self, **more: Any) -> None:
        text = (
            "Percentages of a quota at which an alert is sent, such as 80, 100; off: none; empty: "
            "those of the platform."
        )
        super().__init__(label="Alerts at", required=False, help_text=text, **more)

    def prepare_value(self, value: Any) -> Any:
        return _OFF if value == [] else super().prepare_value(value)

    def to_python(self, value: Any) -> Any:
        if (value or "").strip(" ,") == _OFF:
            return []
        percents = super().to_python(value)
        check_percents(percents)
        return percents or None


def form_field(field: Any, rows: QuerySet[Any] | None = None) -> forms.Field:
    """Return the form's field. `rows` are those that a field with the id of a row offers."""
    details: dict[str, Any] = {
        "label": _LABELS.get(field.label, field.label),
        "help_text": (field.help_text or "").replace("`", ""),  # of the API's documentation
        "required": field.required and not isinstance(field, serializers.BooleanField),
    }
    match field:
        case VisibleRelatedField() if rows is not None:
            label, is_required = details["label"], field.required
            return forms.ModelChoiceField(
                rows, label=label, required=is_required, empty_label=None if is_required else "-"
            )
        case serializers.BooleanField():
            return forms.BooleanField(**details)
        case serializers.DateTimeField():
            details["help_text"] = f"{details['help_text']} In your time zone."
            details["validators"] = field.validators
            widget = forms.DateTimeInput({"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
            return forms.DateTimeField(widget=widget, **details)
        case serializers.IntegerField() | serializers.FloatField():
            details |= {"min_value": field.min_value, "max_value": field.max_value}
            is_whole = isinstance(field, serializers.IntegerField)
            return (forms.IntegerField if is_whole else forms.FloatField)(**details)
        case serializers.ChoiceField():
            none = [("", "not set")] if field.allow_null else []
            return forms.ChoiceField(choices=[*none, *field.choices.items()], **details)
        case serializers.ListField() if isinstance(field.child, serializers.ChoiceField):
            return forms.MultipleChoiceField(
                choices=list(field.child.choices.items()),
                widget=forms.CheckboxSelectMultiple,
                **details | {"required": not field.allow_empty},
            )
        case serializers.ListField() if check_percents in field.validators:
            return PercentsField()
        case serializers.ListField():
            details["help_text"] = f"{details['help_text']} Separated by commas."
            is_of_numbers = isinstance(field.child, serializers.IntegerField)
            return (NumbersField if is_of_numbers else CommaField)(**details)
        case serializers.RegexField():
            details["validators"] = [e for e in field.validators if isinstance(e, RegexValidator)]
    return forms.CharField(max_length=getattr(field, "max_length", None), **details)


def offer(field: forms.Field, choices: Any) -> None:
    if isinstance(field, forms.ChoiceField):
        field.choices = choices
    else:
        field.widget = SuggestingInput(choices, field.widget.attrs)


class SerializerForm(forms.Form):
    """A form with the fields `names` of a serializer. Rules are checked when the values are stored:
    pass their errors to `add_errors`. `rows` are those that fields with the id of a row offer."""

    rare: ClassVar[tuple[str, ...]] = ()  # fields that few users need: pages fold them

    def __init__(
        self,
        fields: Mapping[str, Any],
        names: Iterable[str],
        data: Any,
        rows: Mapping[str, QuerySet[Any]] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(data, **more)
        self._names = {str(fields[name].source): name for name in names}
        offered = rows or {}
        for name in self._names.values():
            if name not in self.fields:
                self.fields[name] = form_field(fields[name], offered.get(name))
        self.order_fields(self.field_order)

    def usual_fields(self) -> list[forms.BoundField]:
        return [field for field in self.visible_fields() if field.name not in self.rare]

    def rare_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.rare if name in self.fields]

    def has_rare_error(self) -> bool:
        return any(name in self.errors for name in self.rare)

    @property
    def columns(self) -> dict[str, Any]:
        known = self.cleaned_data
        return {column: known[name] for column, name in self._names.items() if name in known}

    @property
    def changed_columns(self) -> dict[str, Any]:
        changed = {column for column, name in self._names.items() if name in self.changed_data}
        return {column: value for column, value in self.columns.items() if column in changed}

    def add_errors(self, error: ValidationError, **aliases: str) -> None:
        """Show the errors of a row at its fields. `aliases` maps further columns to fields."""
        names = {**self._names, **aliases}
        known = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
        for column, texts in known.items():
            field = names.get(column, column)
            self.add_error(field if field in self.fields else None, ValidationError(texts))


class ResourceForm(SerializerForm):
    """A form of a new row, or of `row`, by default with all fields that the caller may set."""

    def __init__(
        self,
        resource: Resource[Any],
        access: Access,
        data: Any = None,
        names: Iterable[str] = (),
        row: Any = None,
        **more: Any,
    ) -> None:
        self.access, self.row = access, row
        fields = resource.body_of("create")().fields
        meta = getattr(resource.serializer, "Meta", None)
        fixed = () if row is None else getattr(meta, "fixed", ())
        left_out = {*resource.hidden(access, row), *fixed}
        taken = {k: fields[k] for k in names or resource.writable() if k not in left_out}
        related = {k: each for k, each in taken.items() if isinstance(each, VisibleRelatedField)}
        offered = {k: access.rows(each.model) for k, each in related.items()}
        if "organization" in related:
            offered["organization"] = access.led_organizations()
        shown = resource.model() if row is None else row
        stored = {k: _initial(shown, taken[k]) for k in taken if row or k not in related}
        more["initial"] = {**stored, **more.get("initial", {})}
        super().__init__(fields, taken, data, offered, **more)
        for name, choices in resource.choices(access).items():
            if name in self.fields:
                offer(self.fields[name], choices)
        if "organization" in related and not access.is_superuser:
            self.fields["organization"].required = True  # rows without one are the platform's


def _initial(row: Any, field: Any) -> Any:
    value = getattr(row, str(field.source), None)
    # The inputs of times have no seconds.
    return value.replace(second=0, microsecond=0) if isinstance(value, datetime) else value


class ParametersForm(SerializerForm):
    """A form with the parameters of a job or an action. An empty field has its default."""

    def __init__(
        self,
        serializer: type[serializers.Serializer[Any]],
        names: Iterable[str],
        data: Any,
        **more: Any,
    ) -> None:
        fields, names = serializer().fields, list(names)
        self._defaults = {name: _default(fields[name]) for name in names}
        more["initial"] = self._defaults | more.get("initial", {})
        super().__init__(fields, names, data, **more)

    @property
    def values(self) -> dict[str, Any]:
        return {
            name: self._defaults[name] if value in (None, "") else value
            for name, value in self.columns.items()
        }


def _default(field: Any) -> Any:
    if field.default is empty:
        return None
    return field.default() if callable(field.default) else field.default


def text_of(value: Any) -> Any:
    """Return a value in words. Times stay, which Django writes in the user's language."""
    match value:
        case bool():
            return "yes" if value else "no"
        case datetime() | int() | float():
            return value
        case _ if not value:
            return "-"
        case Mapping():
            return "\n".join(f"{name}: {text_of(each)}" for name, each in value.items())
        case list() | tuple():
            is_of_rows = any(isinstance(each, Mapping) for each in value)
            return ("\n" if is_of_rows else ", ").join(map(_line, value))
    return str(value)


def _line(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {text_of(each)}" for name, each in value.items())
    return str(value)
