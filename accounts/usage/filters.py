"""Filters of usage, and the usage that a user may see. Reports and exports share them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Any, Final

from django.db.models import Q

ANY = Q()
NOTHING = Q(pk__in=())

STATUS_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")
NO_STATUS: Final = "none"
"""The filter's value for requests that were never answered."""

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

    @property
    def plural(self) -> str:
        """The field of `Filters`."""
        return "statuses" if self is Dimension.STATUS else f"{self}s"

    def to_public(self, stored: Key) -> Key:
        """Return the value that APIs and pages use for a stored one: `4xx` for 4."""
        return f"{stored}xx" if self is Dimension.STATUS and stored is not None else stored

    def to_stored(self, public: Key) -> Key:
        """Return the column's value for a public one: 4 for `4xx`."""
        return int(str(public)[0]) if self is Dimension.STATUS and public is not None else public

    @property
    def name_column(self) -> str | None:
        """The column with the name of an id; None if the value is a name itself."""
        return NAME_COLUMNS.get(self.column)


class _Conditions:
    """Sets of values, in fields with the plural names of dimensions."""

    __slots__ = ()

    def by_dimension(self) -> dict[Dimension, Values]:
        """Return the conditions that are not empty."""
        sets: dict[Dimension, Values] = {
            each: getattr(self, each.plural, frozenset()) for each in Dimension
        }
        return {dimension: values for dimension, values in sets.items() if values}


@dataclass(frozen=True, slots=True)
class Filters(_Conditions):
    """Conditions that must all hold; an empty one always holds.

    None in a set matches records without a key, owner or status.
    """

    keys: frozenset[int | None] = frozenset()
    users: frozenset[int | None] = frozenset()
    projects: frozenset[int | None] = frozenset()
    organizations: frozenset[int | None] = frozenset()
    models: frozenset[str] = frozenset()
    endpoints: frozenset[str] = frozenset()
    outcomes: frozenset[str] = frozenset()
    statuses: frozenset[str | None] = frozenset()


EVERYTHING = Filters()


@dataclass(frozen=True, slots=True)
class Visible(_Conditions):
    """The usage that a user may see: records of any of these. Empty sets show nothing."""

    keys: frozenset[int] = frozenset()
    users: frozenset[int] = frozenset()
    projects: frozenset[int] = frozenset()
    organizations: frozenset[int] = frozenset()


def restriction(filters: Filters, visible: Visible | None) -> Q:
    """Return the condition on usage records or slices. `visible` None: everything is visible."""
    wanted = Q(*(among(*pair) for pair in filters.by_dimension().items()))
    if visible is None:
        return wanted
    theirs = (among(*pair) for pair in visible.by_dimension().items())
    return wanted & reduce(or_, theirs, NOTHING)


def columns_of(filters: Filters, visible: Visible | None) -> frozenset[str]:
    """Return the columns that `restriction` reads."""
    dimensions = [*filters.by_dimension(), *(visible.by_dimension() if visible else ())]
    return frozenset(dimension.column for dimension in dimensions)


def among(dimension: Dimension, values: Values) -> Q:
    """Return the condition that a row's value is one of these; None matches null."""
    known = {dimension.to_stored(value) for value in values if value is not None}
    condition = Q(**{f"{dimension.column}__in": known}) if known else NOTHING
    return condition | Q(**{dimension.column: None}) if None in values else condition
