"""Which of the things that usage can be grouped by are kept apart in a roll-up.

A key that uses three models at two endpoints has a dozen rows an hour in the finest grain;
who only wants to know about projects should not have to add them up, and neither merge their
histograms. So each request is added up in every grain, and a report reads the coarsest one
that has what it asks for. Organisations are in almost all: their members see nothing else.
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


class Grain(StrEnum):
    """From the one with the fewest rows to the one that has everything."""

    PROJECT = "project"
    OUTCOME = "outcome"
    ENDPOINT = "endpoint"
    MODEL = "model"
    WHAT = "what"
    KEY = "key"
    ALL = "all"

    @property
    def columns(self) -> frozenset[str]:
        """Of a slice, without the names that belong to ids."""
        return _COLUMNS[self]


_COLUMNS = {
    Grain.PROJECT: frozenset({"project_id", "organization_id"}),
    Grain.OUTCOME: frozenset({"organization_id", "outcome", "status_class"}),
    Grain.ENDPOINT: frozenset({"organization_id", "endpoint"}),
    Grain.MODEL: frozenset({"organization_id", "model"}),
    Grain.WHAT: frozenset({"model", "endpoint", "outcome", "status_class"}),
    Grain.KEY: frozenset({"key_id", "user_id", "project_id", "organization_id"}),
    Grain.ALL: frozenset(
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
    """What a `UsageSlice` is about, in the order of its digest, which must not change."""

    grain: str
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
        """What tells it from all others, where a unique index over nulls could not."""
        return blake2b(msgspec.json.encode(tuple(self)), digest_size=16).hexdigest()

    def record(self) -> UsageSlice:
        """A row, not yet saved."""
        return UsageSlice(digest=self.digest, **self._asdict())

    def at(self, grain: Grain) -> Slice:
        """The slice of a coarser grain that this one is a part of."""
        if grain is Grain.ALL:
            return self
        kept = _COLUMNS[grain]
        has_key, has_project = "key_id" in kept, "project_id" in kept
        has_organization = "organization_id" in kept
        return Slice(
            grain=str(grain),
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


def coarsest(grains: Iterable[Grain], columns: Collection[str]) -> Grain:
    """The one with the fewest rows of those that have all of these columns."""
    return next(grain for grain in grains if grain.columns.issuperset(columns))


def slice_of(row: UsageRecord) -> Slice:
    """What a row is about, in the finest grain.

    Clients can ask for models that do not exist, by as many names as they like; lest these
    fill the books for ever, they count as "".
    """
    is_unknown = row.outcome == Outcome.REJECTED and row.http_status == 404
    return Slice(
        grain=str(Grain.ALL),
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
