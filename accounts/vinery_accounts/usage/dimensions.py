"""The combinations of columns that usage is aggregated by.

Each request is aggregated once for each member of `RollupDimensions`, and a report reads the one
with the fewest rows that has its columns. So a report about projects does not add up the rows of
each key, model and endpoint. Almost all contain the organisation, because members of an
organisation see nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from hashlib import blake2b
from operator import attrgetter, itemgetter
from typing import NamedTuple

import msgspec

from vinery_accounts.models.rollups import UsageSlice
from vinery_accounts.models.usage import UsageRecord
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.filters import NAME_COLUMNS


class RollupDimensions(StrEnum):
    """A set of columns that a roll-up keeps apart, in order of the number of rows."""

    PROJECT = "project"
    OUTCOME = "outcome"
    ENDPOINT = "endpoint"
    MODEL = "model"
    WHAT = "what"
    KEY = "key"
    ALL = "all"


# The columns of a slice, without the names that belong to ids.
_COLUMNS: dict[RollupDimensions, frozenset[str]] = {
    RollupDimensions.PROJECT: frozenset({"project_id", "organization_id"}),
    RollupDimensions.OUTCOME: frozenset({"organization_id", "outcome", "status_class"}),
    RollupDimensions.ENDPOINT: frozenset({"organization_id", "endpoint"}),
    RollupDimensions.MODEL: frozenset({"organization_id", "model"}),
    RollupDimensions.WHAT: frozenset({"model", "endpoint", "outcome", "status_class"}),
    RollupDimensions.KEY: frozenset({"key_id", "user_id", "project_id", "organization_id"}),
}
_COLUMNS[RollupDimensions.ALL] = frozenset().union(*_COLUMNS.values())


# The columns of ids, by the columns with their names.
_ID_COLUMNS = {name: id_ for id_, name in NAME_COLUMNS.items()}


class Slice(NamedTuple):
    """The values of a `UsageSlice`. The digest depends on the order of the fields: keep it."""

    dimensions: str
    key_id: int | None = None
    key_name: str = ""
    user_id: int | None = None
    username: str = ""
    project_id: int | None = None
    project_name: str = ""
    organization_id: int | None = None
    organization_name: str = ""
    model: str = ""
    endpoint: str = ""
    outcome: str = ""
    status_class: int | None = None

    @property
    def digest(self) -> str:
        """32 hex digits, unique for these values. A unique index ignores rows with nulls."""
        return blake2b(msgspec.json.encode(tuple(self)), digest_size=16).hexdigest()

    def record(self) -> UsageSlice:
        return UsageSlice(digest=self.digest, **self._asdict())

    def at(self, dimensions: RollupDimensions) -> Slice:
        """Return the slice with only these dimensions, which contains this one."""
        return Slice._make((str(dimensions), *_KEPT[dimensions](self + _EMPTY)))


_EMPTY = tuple(Slice._field_defaults.values())
# Functions that take a slice followed by empty values, and return one of both for each column.
_KEPT = {
    dimensions: itemgetter(
        *(
            at if {column, _ID_COLUMNS.get(column)} & columns else at + len(_EMPTY)
            for at, column in enumerate(Slice._field_defaults, start=1)
        )
    )
    for dimensions, columns in _COLUMNS.items()
}

ABOUT_RECORDS = (*Slice._fields[1:-1], "http_status")
"""The columns of usage records that `slice_of` reads."""


def coarsest(choices: Iterable[RollupDimensions], columns: Collection[str]) -> RollupDimensions:
    """Return the choice with the fewest rows that has all of these columns.

    Raises StopIteration if none has them; `RollupDimensions.ALL` always does.
    """
    return next(dimensions for dimensions in choices if _COLUMNS[dimensions].issuperset(columns))


def slice_of(row: UsageRecord) -> Slice:
    """Return the slice of a usage record with all dimensions.

    A client can request any number of models that do not exist. Such names would fill the
    tables for good, so the slice has "" instead.
    """
    is_unknown = row.outcome == Outcome.REJECTED and row.http_status == 404
    model = "" if is_unknown else row.model
    status_class = row.http_status and row.http_status // 100
    about = (model, row.endpoint, str(row.outcome), status_class)
    return Slice._make((str(RollupDimensions.ALL), *_owners(row), *about))


_owners = attrgetter(*Slice._fields[1:9])
