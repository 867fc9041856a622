"""Which usage is meant, and which a person may see: the same for reports and exports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Final

from django.db.models import Q

ANY = Q()
NOTHING = Q(pk__in=())

STATUS_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")
NO_STATUS: Final = "none"
"""What those who ask write for requests that were never answered."""

Key = int | str | None
"""Of a dimension: an id, a name or a class of status; None for who or what has none."""
Values = frozenset[int | None] | frozenset[str] | frozenset[str | None]


class Dimension(StrEnum):
    """What usage can be filtered and grouped by."""

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
        """In slices, and in usage rows; these have no class of status until it is computed."""
        if self is Dimension.STATUS:
            return "status_class"
        return f"{self}_id" if self in _NAMES else self.value

    @property
    def plural(self) -> str:
        """Its field of `Filters`."""
        return "statuses" if self is Dimension.STATUS else f"{self}s"

    def told(self, stored: Key) -> Key:
        """What stands for a column's value outside of the tables: `4xx` for 4."""
        return f"{stored}xx" if self is Dimension.STATUS and stored is not None else stored

    def stored(self, told: Key) -> Key:
        """The column's value again."""
        return int(str(told)[0]) if self is Dimension.STATUS and told is not None else told

    @property
    def name_column(self) -> str | None:
        """Where the name for an id stands; None for what is a name itself."""
        return _NAMES.get(self)


_NAMES = {
    Dimension.KEY: "key_name",
    Dimension.USER: "username",
    Dimension.PROJECT: "project_name",
    Dimension.ORGANIZATION: "organization_name",
}


@dataclass(frozen=True, slots=True)
class Filters:
    """All of these must hold; what is empty holds always. None is who has no key, and what
    has no status."""

    keys: frozenset[int | None] = frozenset()
    users: frozenset[int | None] = frozenset()
    projects: frozenset[int | None] = frozenset()
    organizations: frozenset[int | None] = frozenset()
    models: frozenset[str] = frozenset()
    endpoints: frozenset[str] = frozenset()
    outcomes: frozenset[str] = frozenset()
    statuses: frozenset[str | None] = frozenset()

    def by_dimension(self) -> dict[Dimension, Values]:
        """Those that are not empty."""
        wanted: dict[Dimension, Values] = {
            Dimension.KEY: self.keys,
            Dimension.USER: self.users,
            Dimension.PROJECT: self.projects,
            Dimension.ORGANIZATION: self.organizations,
            Dimension.MODEL: self.models,
            Dimension.ENDPOINT: self.endpoints,
            Dimension.OUTCOME: self.outcomes,
            Dimension.STATUS: self.statuses,
        }
        return {dimension: values for dimension, values in wanted.items() if values}


EVERYTHING = Filters()


@dataclass(frozen=True, slots=True)
class Visible:
    """What somebody may see: whatever belongs to any of these. None of them is nothing."""

    keys: frozenset[int] = frozenset()
    users: frozenset[int] = frozenset()
    projects: frozenset[int] = frozenset()
    organizations: frozenset[int] = frozenset()

    def by_dimension(self) -> dict[Dimension, frozenset[int | None]]:
        """Those that are not empty."""
        theirs: dict[Dimension, frozenset[int | None]] = {
            Dimension.KEY: frozenset(self.keys),
            Dimension.USER: frozenset(self.users),
            Dimension.PROJECT: frozenset(self.projects),
            Dimension.ORGANIZATION: frozenset(self.organizations),
        }
        return {dimension: ids for dimension, ids in theirs.items() if ids}


def restriction(filters: Filters, visible: Visible | None) -> Q:
    """Both together, on usage rows or slices. A `visible` of None is whoever sees everything."""
    wanted = Q(*(among(*pair) for pair in filters.by_dimension().items()))
    if visible is None:
        return wanted
    theirs = (among(*pair) for pair in visible.by_dimension().items())
    return wanted & reduce(or_, theirs, NOTHING)


def columns_of(filters: Filters, visible: Visible | None) -> frozenset[str]:
    """What `restriction` looks at."""
    looked_at = [*filters.by_dimension(), *(visible.by_dimension() if visible else ())]
    return frozenset(dimension.column for dimension in looked_at)


def among(dimension: Dimension, values: Values) -> Q:
    """That a row's value is one of these, where None is one like others."""
    known = {dimension.stored(value) for value in values if value is not None}
    condition = Q(**{f"{dimension.column}__in": known}) if known else NOTHING
    return condition | Q(**{dimension.column: None}) if None in values else condition
