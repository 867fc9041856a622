"""Serializers and fields that all resources share. Unknown names are refused, never ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal, NoReturn, get_args, get_origin, get_type_hints

from django.db.models import Model, QuerySet
from django.http import QueryDict
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.validators import UniqueTogetherValidator, UniqueValidator

from vinery_accounts.access.access import Access
from vinery_accounts.base.limit_table import METRIC_CHOICES, WINDOW_CHOICES
from vinery_accounts.usage.periods import check_moment

MAX_ID: Final = 2**63 - 1
MAX_PAGE: Final = 200
DEFAULT_PAGE: Final = 50
# In the addresses of the API, the console and the admin. Any such number is below `MAX_ID`, and
# SQLite cannot read larger ones.
MAX_ID_DIGITS: Final = 18


def not_found(kind: str, row_id: object, access: Access | None) -> str:
    """Return the one message about a row that does not exist or that the caller may not see."""
    what = f"{kind[:1].upper()}{kind[1:]} {row_id} not found"
    if access is not None and access.is_superuser:
        return f"{what}."
    seen = "this key's project" if access is not None and access.is_of_key else "your roles"
    return f"{what}, or outside {seen}."


def id_of(text: str) -> int | None:
    """Return the id that a part of an address names; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_ID_DIGITS else None


class StrictSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """A serializer that refuses unknown and read-only names. The context has `access` (an
    `Access`), and `is_change` while an existing row is changed."""

    def to_internal_value(self, data: Any) -> Any:
        known = sorted(name for name, field in self.fields.items() if not field.read_only)
        for name in data if isinstance(data, Mapping) else ():
            if name not in known:
                names = ", ".join(known) or "none"
                text = f"There is no such parameter. There are: {names}."
                text = "This cannot be set." if name in self.fields else text
                raise serializers.ValidationError({str(name): text}, code="unknown")
        if isinstance(data, QueryDict):
            for name, values in data.lists():
                if len(values) > 1:
                    raise serializers.ValidationError({name: "Give this once."})
                if values == [""]:  # REST framework would ignore it, and list everything
                    raise serializers.ValidationError({name: "Give a value, or leave this out."})
        return super().to_internal_value(data)


class StrictModelSerializer(StrictSerializer, serializers.ModelSerializer):  # type: ignore[type-arg]
    """A strict serializer of a model. `Meta.fixed` names the fields that only a new row takes."""

    def get_validators(self) -> Any:
        return [each for each in super().get_validators() if not _needs_query(each)]

    def get_fields(self) -> Any:
        """Return the fields; fixed ones are read-only for a row that exists. Fields do not look for
        equal rows: `access/changes` does after the check of the permission, so that a caller
        without permission does not learn which names exist."""
        fields = super().get_fields()
        for field in fields.values():
            field.validators = [each for each in field.validators if not _needs_query(each)]
        if self.context.get("is_change") or isinstance(self.instance, Model):
            for name in getattr(self.Meta, "fixed", ()):
                fields[name].read_only = True
        return fields


def _needs_query(validator: Any) -> bool:
    return isinstance(validator, UniqueValidator | UniqueTogetherValidator)


class EmptySerializer(StrictSerializer):
    """An empty body."""


# -- Parameters: a frozen dataclass that the API, pages and commands read

_FIELDS: Final = {
    str: serializers.CharField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    bool: serializers.BooleanField,
    dict: serializers.DictField,
}


def serializer_of(parameters: Any) -> type[StrictSerializer]:
    """Return the serializer of a dataclass of parameters. A parameter is annotated with its type,
    its text and any options of the field, such as `{"max_length": 200}`."""
    hints = get_type_hints(parameters, include_extras=True)
    members: dict[str, Any] = {
        each.name: _parameter(hints[each.name], each) for each in dataclasses.fields(parameters)
    }
    members["__doc__"] = parameters.__doc__
    return type(f"{parameters.__name__}Serializer", (StrictSerializer,), members)


def _parameter(hint: Any, each: dataclasses.Field[Any]) -> Any:
    kind, help_text, *more = get_args(hint)
    options: dict[str, Any] = {"help_text": help_text, **(more[0] if more else {})}
    if each.default is not dataclasses.MISSING:
        options["default"] = each.default
    elif each.default_factory is not dataclasses.MISSING:
        options["default"] = each.default_factory
    if type(None) in get_args(kind):
        options["allow_null"] = True
        (kind,) = (one for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is Literal:
        return serializers.ChoiceField(choices=get_args(kind), **options)
    if get_origin(kind) is list:
        return serializers.ListField(child=serializers.CharField(max_length=200), **options)
    if "regex" in options:
        return serializers.RegexField(**options)
    field: Any = _FIELDS[get_origin(kind) or kind]
    return field(**options)


class VisibleRelatedField(serializers.PrimaryKeyRelatedField):  # type: ignore[type-arg]
    """The id of a row that the caller may see. Other rows are reported as missing."""

    def __init__(self, model: type[Model], *related: str, **more: Any) -> None:
        self.model, self.related = model, related
        more["error_messages"] = {"incorrect_type": "Give an id, a whole number."}
        # REST framework wants a queryset at once; the caller is known later.
        super().__init__(queryset=model._default_manager.none(), **more)

    def run_validation(self, data: Any = empty) -> Any:
        """Raises ValidationError for an empty text, which REST framework reads as null."""
        if data == "":
            self.fail("incorrect_type")
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> Any:
        """Return the row. Raises ValidationError for a fraction: Django reads 1.5 as 1."""
        if isinstance(data, float):
            self.fail("incorrect_type")
        return super().to_internal_value(data)

    def fail(self, key: str, **values: Any) -> NoReturn:
        if key != "does_not_exist":
            super().fail(key, **values)
        kind = str(self.model._meta.verbose_name)
        text = not_found(kind, values["pk_value"], self.context.get("access"))
        raise serializers.ValidationError(text, code=key)

    def get_queryset(self) -> QuerySet[Any]:
        access = self.context.get("access")
        if access is None:
            return self.model._default_manager.none()
        rows: QuerySet[Any] = access.rows(self.model)
        return rows.select_related(*self.related) if self.related else rows


class NameListField(serializers.ListField):
    """A list of names; an empty list allows all."""

    child = serializers.CharField(max_length=255)

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"required": False, "max_length": 1000, **more})


class IssuedSecretField(serializers.CharField):
    """The secret of a new row, which the context of the serializer holds."""

    def get_attribute(self, instance: Any) -> Any:
        return self.context["secret"]


def with_secret(serializer: Any, help_text: str) -> Any:
    meta = serializer.Meta
    members = {
        "secret": IssuedSecretField(read_only=True, help_text=help_text),
        "Meta": type("Meta", (meta,), {"fields": [*meta.fields, "secret"]}),
        "__doc__": "A new row with its secret, which is never returned again.",
    }
    return type(f"New{serializer.__name__}", (serializer,), members)


def name_of(relation: str) -> serializers.CharField:
    return serializers.CharField(
        source=f"{relation}.name", read_only=True, default=None, allow_null=True
    )


class Filters(StrictSerializer):
    """The query string of a list. The source of a filter is its lookup, unless a method
    `filter_<source>` gives another condition."""

    limit = serializers.IntegerField(
        default=DEFAULT_PAGE, min_value=1, max_value=MAX_PAGE, help_text="Page size."
    )
    cursor = serializers.CharField(
        required=False, help_text="The `next_cursor` or `previous_cursor` of another page."
    )

    @classmethod
    def of(cls, **filters: Any) -> type[Filters]:
        return type("Filters", (cls,), filters)

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        for lookup, value in self.validated_data.items():
            if lookup not in ("limit", "cursor"):
                rows = self.narrow(rows, lookup, value)
        return rows

    def narrow(self, rows: QuerySet[Any], lookup: str, value: Any) -> Any:
        special = getattr(self, f"filter_{lookup}", None)
        return special(rows, value) if special else rows.filter(**{lookup: value})


class DatedFilters(Filters):
    """Filters of rows that have `created_at`."""

    def get_fields(self) -> Any:
        return {**super().get_fields(), **period_filters("created_at__gte", "created_at__lt")}


class OptionalBooleanField(serializers.BooleanField):
    """A boolean that may be absent: REST framework reads an absent one in a query string as
    false, as in an HTML form."""

    default_empty_html = empty


def id_filter(what: str, source: str | None = None) -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_ID, source=source, help_text=f"The id of {what}."
    )


def text_filter(help_text: str) -> serializers.CharField:
    return serializers.CharField(required=False, max_length=255, help_text=help_text)


def choice_filter(choices: Any, help_text: str) -> serializers.ChoiceField:
    return serializers.ChoiceField(choices=choices, required=False, help_text=help_text)


def switch_filter(help_text: str) -> OptionalBooleanField:
    return OptionalBooleanField(required=False, help_text=help_text)


def named_filters() -> dict[str, Any]:
    return {
        "name": text_filter("Exactly this name."),
        "is_active": switch_filter("Only active or inactive ones."),
    }


def limit_filters() -> dict[str, Any]:
    return {
        "metric": choice_filter(METRIC_CHOICES, "Only of this metric."),
        "window": choice_filter(WINDOW_CHOICES, "Only in this window."),
        "is_shadow": switch_filter("Only shadow limits, or only the others."),
    }


def period_filters(since: str | None = None, until: str | None = None) -> dict[str, Any]:
    """Return the filters `from` (inclusive), which is no Python name, and `to` (exclusive), with
    these sources."""
    moment = partial(serializers.DateTimeField, required=False, validators=[check_moment])
    return {
        "from": moment(source=since, help_text="From this time on, such as 2026-03-01T12:00Z."),
        "to": moment(source=until, help_text="Before this time."),
    }
