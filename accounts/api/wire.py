"""What requests may say: a name that nothing reads is refused, never ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from django.db.models import Model, QuerySet
from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.fields import empty
from rest_framework.parsers import JSONParser

from accounts.usage.periods import check_moment

MAX_ID: Final = 2**63 - 1
MAX_PAGE: Final = 200
USUAL_PAGE: Final = 50


class Json(JSONParser):
    """A body of JSON."""

    def parse(self, stream: Any, *args: Any, **kwargs: Any) -> Any:
        """As REST framework's. Raises ParseError for what is nested too deeply, too, and for
        what neither the database nor an answer could hold."""
        try:
            body = super().parse(stream, *args, **kwargs)
            json.dumps(body, ensure_ascii=False).encode()
        except RecursionError:
            raise ParseError("JSON parse error - it is nested too deeply.") from None
        except UnicodeEncodeError:
            raise ParseError(
                "JSON parse error - a string holds half of a surrogate pair."
            ) from None
        return body


class Strict(serializers.Serializer):  # type: ignore[type-arg]
    """A serializer that refuses names that it does not know."""

    def to_internal_value(self, data: Any) -> Any:
        """As REST framework's. Raises ValidationError naming what is unknown."""
        if isinstance(data, Mapping):
            known = {name for name, field in self.fields.items() if not field.read_only}
            for name in data:
                if name not in known:
                    raise serializers.ValidationError({str(name): self._refusal(str(name))})
        if isinstance(data, QueryDict):
            for name, values in data.lists():
                if len(values) > 1:
                    raise serializers.ValidationError({name: "Give this once."})
                if values == [""]:  # REST framework passes over it, and would answer for all
                    raise serializers.ValidationError({name: "Give a value, or leave this out."})
        return super().to_internal_value(data)

    def _refusal(self, name: str) -> Any:
        if name in self.fields:
            return serializers.ErrorDetail("This cannot be set.", code="unknown")
        known = sorted(name for name, field in self.fields.items() if not field.read_only)
        return serializers.ErrorDetail(
            f"There is no such parameter. There are: {', '.join(known) or 'none'}.", code="unknown"
        )


class StrictModel(Strict, serializers.ModelSerializer):  # type: ignore[type-arg]
    """The same over a table."""


class Nothing(Strict):
    """An empty body."""


class Filters(Strict):
    """The query string of a list. Columns are named as filters are, unless `lookups` says
    otherwise."""

    lookups: ClassVar[Mapping[str, str]] = {}

    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_PAGE, default=USUAL_PAGE, help_text="Page size."
    )
    cursor = serializers.CharField(
        required=False, help_text="The `next_cursor` or `previous_cursor` of another page."
    )

    def apply(self, rows: QuerySet[Model]) -> QuerySet[Model]:
        """The rows that are asked for."""
        asked = {
            self.lookups.get(name, name): value
            for name, value in self.validated_data.items()
            if name not in ("limit", "cursor") and not hasattr(self, f"filter_{name}")
        }
        rows = rows.filter(**asked)
        for name, value in self.validated_data.items():
            special = getattr(self, f"filter_{name}", None)
            if special is not None:
                rows = special(rows, value)
        return rows


def id_filter(what: str) -> serializers.IntegerField:
    """Rows of this one."""
    return serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_ID, help_text=f"The id of {what}."
    )


def text_filter(what: str, **more: Any) -> serializers.CharField:
    """Rows with exactly this text."""
    return serializers.CharField(required=False, max_length=255, help_text=what, **more)


def period_filters() -> dict[str, serializers.DateTimeField]:
    """Rows from a moment to before another."""
    words = {"from": "From this moment on, such as 2026-03-01T12:00Z.", "to": "Before this moment."}
    return {
        name: serializers.DateTimeField(required=False, help_text=what, validators=[check_moment])
        for name, what in words.items()
    }


def choice_filter(choices: Any, what: str) -> serializers.ChoiceField:
    """Rows with one of a few values."""
    return serializers.ChoiceField(choices=choices, required=False, help_text=what)


class Switch(serializers.BooleanField):
    """True or false, or neither: REST framework takes one that is absent in a query string for
    false, as if it were a form's."""

    default_empty_html = empty


def switch_filter(what: str) -> Switch:
    """Rows that are so, or are not."""
    return Switch(required=False, help_text=what)
