"""Serializers and fields that all resources share. Unknown names are refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from django.db.models import Model, QuerySet
from django.http import QueryDict
from rest_framework import serializers
from rest_framework.fields import empty

from accounts.usage.periods import check_moment

MAX_ID: Final = 2**63 - 1
MAX_PAGE: Final = 200
DEFAULT_PAGE: Final = 50


class StrictSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """A serializer that refuses unknown and read-only names.

    The context has `access` (an `Access`), and `is_change` while an existing row is changed.
    """

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated values. Raises ValidationError that names an unknown field."""
        if isinstance(data, Mapping):
            known = {name for name, field in self.fields.items() if not field.read_only}
            for name in data:
                if name not in known:
                    raise serializers.ValidationError({str(name): self._refusal(str(name))})
        if isinstance(data, QueryDict):
            for name, values in data.lists():
                if len(values) > 1:
                    raise serializers.ValidationError({name: "Give this once."})
                if values == [""]:  # REST framework would ignore it, and list everything
                    raise serializers.ValidationError({name: "Give a value, or leave this out."})
        return super().to_internal_value(data)

    def _refusal(self, name: str) -> Any:
        if name in self.fields:
            return serializers.ErrorDetail("This cannot be set.", code="unknown")
        known = sorted(name for name, field in self.fields.items() if not field.read_only)
        return serializers.ErrorDetail(
            f"There is no such parameter. There are: {', '.join(known) or 'none'}.", code="unknown"
        )


class StrictModelSerializer(StrictSerializer, serializers.ModelSerializer):  # type: ignore[type-arg]
    """A strict serializer of a model. `Meta.fixed` names the fields that only a new row takes."""

    def get_fields(self) -> Any:
        """Return the fields; fixed ones are read-only for a row that exists."""
        fields = super().get_fields()
        if self.context.get("is_change") or isinstance(self.instance, Model):
            for name in getattr(self.Meta, "fixed", ()):
                fields[name].read_only = True
        return fields


class EmptySerializer(StrictSerializer):
    """An empty body."""


class VisibleRelatedField(serializers.PrimaryKeyRelatedField):  # type: ignore[type-arg]
    """The id of a row that the caller may see. Other rows are reported as missing."""

    def __init__(self, model: type[Model], *related: str, **more: Any) -> None:
        self.model, self.related = model, related
        more["error_messages"] = {
            "does_not_exist": f"There is no {model._meta.verbose_name} of this id, or not for you.",
            "incorrect_type": "Give an id, a whole number.",
        }
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

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that the caller may see."""
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


class Filters(StrictSerializer):
    """The query string of a list. A filter has the name of its column unless `lookups` or a
    method `filter_<name>` gives another condition."""

    lookups: ClassVar[Mapping[str, str]] = {}

    limit = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_PAGE,
        default=DEFAULT_PAGE,
        help_text="Page size.",
    )
    cursor = serializers.CharField(
        required=False, help_text="The `next_cursor` or `previous_cursor` of another page."
    )

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that match all filters of the query string."""
        for name, value in self.validated_data.items():
            if name not in ("limit", "cursor"):
                rows = self.narrow(rows, name, value)
        return rows

    def narrow(self, rows: QuerySet[Any], name: str, value: Any) -> QuerySet[Any]:
        """Return the rows that match one filter."""
        special = getattr(self, f"filter_{name}", None)
        if special is not None:
            filtered: QuerySet[Any] = special(rows, value)
            return filtered
        return rows.filter(**{self.lookups.get(name, name): value})


class DatedFilters(Filters):
    """Filters of rows that have `created_at`."""

    lookups: ClassVar[dict[str, str]] = {"from": "created_at__gte", "to": "created_at__lt"}

    def get_fields(self) -> Any:
        """Return the fields with `from`, which is no Python name, and `to`."""
        return {**super().get_fields(), **period_filters()}


class OptionalBooleanField(serializers.BooleanField):
    """A boolean that may be absent: REST framework reads an absent one in a query string as
    false, as in an HTML form."""

    default_empty_html = empty


def id_filter(what: str) -> serializers.IntegerField:
    """Return a filter by an id."""
    return serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_ID, help_text=f"The id of {what}."
    )


def text_filter(help_text: str, **more: Any) -> serializers.CharField:
    """Return a filter by an exact text."""
    return serializers.CharField(required=False, max_length=255, help_text=help_text, **more)


def choice_filter(choices: Any, help_text: str) -> serializers.ChoiceField:
    """Return a filter by one of a few values."""
    return serializers.ChoiceField(choices=choices, required=False, help_text=help_text)


def switch_filter(help_text: str) -> OptionalBooleanField:
    """Return a filter by a boolean column."""
    return OptionalBooleanField(required=False, help_text=help_text)


def period_filters() -> dict[str, serializers.DateTimeField]:
    """Return the filters `from` (inclusive) and `to` (exclusive)."""
    texts = {"from": "From this time on, such as 2026-03-01T12:00Z.", "to": "Before this time."}
    return {
        name: serializers.DateTimeField(required=False, help_text=text, validators=[check_moment])
        for name, text in texts.items()
    }
