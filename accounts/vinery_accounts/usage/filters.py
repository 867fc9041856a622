"""Filters of usage, and the usage that a user may see. Reports and exports share them."""

from collections.abc import Mapping
from enum import StrEnum
from functools import reduce
from http import HTTPStatus
from operator import or_
from typing import Any, Final

from django.db import models
from django.db.models import Case, CharField, OuterRef, Q, QuerySet, Subquery, Value, When

from vinery_accounts.models import RefusedRequest, UsageRecord

NOTHING = Q(pk__in=())

STATUS_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")
NO_STATUS: Final = "none"  # the filter's value for requests that were never answered

NAME_COLUMNS: Final = {
    "key_id": "key_name",
    "user_id": "username",
    "project_id": "project_name",
    "organization_id": "organization_name",
}
"""The columns with the names of ids."""

Key = int | str | None
"""A dimension's value: an id, a name or a status class; None if the record has none."""
Values = frozenset[Any]


class Dimension(StrEnum):
    """A column that usage can be filtered and grouped by."""

    KEY = "key"
    USER = "user"
    END_USER = "end_user"
    PROJECT = "project"
    ORGANIZATION = "organization"
    MODEL = "model"
    ENDPOINT = "endpoint"
    OUTCOME = "outcome"
    STATUS = "status"

    @property
    def column(self) -> str:
        """The column of slices and usage records; records need `status_class` annotated."""
        if self is Dimension.STATUS:
            return "status_class"
        return f"{self}_id" if f"{self}_id" in NAME_COLUMNS else self.value

    def to_public(self, stored: Key) -> Key:
        """Return the value that APIs and pages use for a stored one: `4xx` for 4."""
        return f"{stored}xx" if self is Dimension.STATUS and stored is not None else stored

    def to_stored(self, public: Key) -> Key:
        return int(str(public)[0]) if self is Dimension.STATUS and public is not None else public

    @property
    def name_column(self) -> str | None:
        return NAME_COLUMNS.get(self.column)


Conditions = Mapping[Dimension, Values]
"""Sets of values. None in a set matches records without a key, owner or status."""


def restriction(filters: Conditions, visible: Conditions | None) -> Q:
    """Return the condition on usage records or slices. All filters must hold, and any condition of
    `visible`: {} shows nothing, None everything."""
    wanted = Q(*(among(*pair) for pair in filters.items()))
    if visible is None:
        return wanted
    return wanted & reduce(or_, (among(*pair) for pair in visible.items()), NOTHING)


def among(dimension: Dimension, values: Values) -> Q:
    known = {dimension.to_stored(value) for value in values if value is not None}
    condition = Q(**{f"{dimension.column}__in": known}) if known else NOTHING
    if dimension is Dimension.END_USER and "" not in known:
        condition &= ~Q(end_user="")  # as the index says: SQLite uses it for no other query
    return condition | Q(**{dimension.column: None}) if None in values else condition


class Effect(models.TextChoices):
    """The names are those of the label `effect` in `/metrics`."""

    REFUSED = "refused", "refused"
    CUT_SHORT = "cut_short", "cut short"
    SHADOW = "shadow", "shadow"


def with_effect(rows: QuerySet[RefusedRequest]) -> QuerySet[RefusedRequest]:
    """Annotate refusals with `effect`, which is None if the usage record has been deleted."""
    usage = UsageRecord.objects.filter(request_id=OuterRef("request_id")).order_by()
    refused = When(http_status=HTTPStatus.TOO_MANY_REQUESTS.value, then=Value(Effect.REFUSED.value))
    answered = Case(refused, default=Value(Effect.CUT_SHORT.value), output_field=CharField())
    return rows.annotate(
        effect=Case(
            When(is_shadow=True, then=Value(Effect.SHADOW.value)),
            default=Subquery(usage.values_list(answered)[:1]),
            output_field=CharField(),
        )
    )
