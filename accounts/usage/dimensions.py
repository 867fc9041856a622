"""The combinations of columns that usage is aggregated by.

A key that uses three models at two endpoints has a dozen rows an hour if all columns are kept
apart. A report about projects should not have to add those up and merge their histograms. So
each request is aggregated once for each member of `RollupDimensions`, and a report reads the
one with the fewest rows that has its columns. Almost all contain the organisation, because
members of an organisation see nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from accounts.models.rollups import UsageSlice
from accounts.models.usage import UsageRecord
from accounts.usage.entries import Outcome


class RollupDimensions(StrEnum):
    """A set of columns that a roll-up keeps apart, in order of the number of rows."""

    PROJECT = "project"
    OUTCOME = "outcome"
    ENDPOINT = "endpoint"
    MODEL = "model"
    WHAT = "what"
    KEY = "key"
    ALL = "all"

    @property
    def columns(self) -> frozenset[str]:
        """The columns of a slice, without the names that belong to ids."""
        return _COLUMNS[self]


_COLUMNS = {
    RollupDimensions.PROJECT: frozenset({"project_id", "organization_id"}),
    RollupDimensions.OUTCOME: frozenset({"organization_id", "outcome", "status_class"}),
    RollupDimensions.ENDPOINT: frozenset({"organization_id", "endpoint"}),
    RollupDimensions.MODEL: frozenset({"organization_id", "model"}),
    RollupDimensions.WHAT: frozenset({"model", "endpoint", "outcome", "status_class"}),
    RollupDimensions.KEY: frozenset({"key_id", "user_id", "project_id", "organization_id"}),
    RollupDimensions.ALL: frozenset(
        {
            "key_id",
            "user_id",
            "project_id",
            "organization_id",
            "model",
            "endpoint",
            "outcome",
            "status_class",
        }
    ),
}


class Slice(NamedTuple):
    """The values of a `UsageSlice`. The digest depends on the order of the fields: keep it."""

    dimensions: str
    key_id: int | None
    key_name: str
    user_id: int | None
    username: str
    project_id: int | None
    project_name: str
    organization_id: int | None
    organization_name: str
    model: str
    endpoint: str
    outcome: str
    status_class: int | None

    @property
    def digest(self) -> str:
        """32 hex digits, unique for these values. A unique index ignores rows with nulls."""
        return blake2b(msgspec.json.encode(tuple(self)), digest_size=16).hexdigest()

    def record(self) -> UsageSlice:
        """Return an unsaved row."""
        return UsageSlice(digest=self.digest, **self._asdict())

    def at(self, dimensions: RollupDimensions) -> Slice:
        """Return the slice with only these dimensions, which contains this one."""
        if dimensions is RollupDimensions.ALL:
            return self
        kept = _COLUMNS[dimensions]
        has_key, has_project = "key_id" in kept, "project_id" in kept
        has_organization = "organization_id" in kept
        return Slice(
            dimensions=str(dimensions),
            key_id=self.key_id if has_key else None,
            key_name=self.key_name if has_key else "",
            user_id=self.user_id if has_key else None,
            username=self.username if has_key else "",
            project_id=self.project_id if has_project else None,
            project_name=self.project_name if has_project else "",
            organization_id=self.organization_id if has_organization else None,
            organization_name=self.organization_name if has_organization else "",
            model=self.model if "model" in kept else "",
            endpoint=self.endpoint if "endpoint" in kept else "",
            outcome=self.outcome if "outcome" in kept else "",
            status_class=self.status_class if "outcome" in kept else None,
        )


ABOUT_RECORDS = (*Slice._fields[1:-1], "http_status")
"""The columns of usage records that `slice_of` reads."""


def coarsest(choices: Iterable[RollupDimensions], columns: Collection[str]) -> RollupDimensions:
    """Return the choice with the fewest rows that has all of these columns.

    Raises StopIteration if none has them; `RollupDimensions.ALL` always does.
    """
    return next(dimensions for dimensions in choices if dimensions.columns.issuperset(columns))


def slice_of(row: UsageRecord) -> Slice:
    """Return the slice of a usage record with all dimensions.

    A client can request any number of models that do not exist. Such names would fill the
    tables for good, so the slice has "" instead.
    """
    is_unknown = row.outcome == Outcome.REJECTED and row.http_status == 404
    return Slice(
        dimensions=str(RollupDimensions.ALL),
        key_id=row.key_id,
        key_name=row.key_name,
        user_id=row.user_id,
        username=row.username,
        project_id=row.project_id,
        project_name=row.project_name,
        organization_id=row.organization_id,
        organization_name=row.organization_name,
        model="" if is_unknown else row.model,
        endpoint=row.endpoint,
        outcome=str(row.outcome),
        status_class=row.http_status and row.http_status // 100,
    )
