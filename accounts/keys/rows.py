"""What the key table reads from the database: a fingerprint, and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from django.db import connection, models
from django.db.models.functions import Cast

from accounts.base.timestamps import Stamped
from accounts.models import ApiKey, Organization, Project, User


class KeyRow(NamedTuple):
    """One key with what matters of its owner and its project. The lists are JSON."""

    key_id: int
    digest: str
    name: str
    scopes: str
    models: str
    endpoints: str
    networks: str
    expires_at: datetime | None
    revoked_at: datetime | None
    paused_at: datetime | None
    owner_id: int
    username: str
    is_owner_active: bool
    project_id: int
    project_name: str
    is_project_active: bool
    capture_hours: int
    organization_id: int
    organization_name: str
    is_organization_active: bool


class Counts(NamedTuple):
    """How many keys there are: all, and those that open no door, each counted once for the
    first reason in this order."""

    num_keys: int
    num_revoked: int
    num_paused: int
    num_owner_inactive: int
    num_project_inactive: int


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Two that are equal mean that, as far as an index can tell, nothing changed.

    `marks` are the newest ids and stamps, in whatever type the database returns.
    """

    counts: Counts
    marks: tuple[object, ...]


Stamps = Mapping[type[Stamped], Mapping[int, datetime]]
"""When rows were last changed, by their ids."""

# Scalar subqueries, because each one alone is answered from an index, which several
# aggregates over one table are not.
_KEYS, _USERS = ApiKey._meta.db_table, User._meta.db_table
_PROJECTS, _ORGANIZATIONS = Project._meta.db_table, Organization._meta.db_table
_INACTIVE_OWNERS = f"(SELECT id FROM {_USERS} WHERE NOT is_active)"
_INACTIVE_PROJECTS = (
    f"(SELECT id FROM {_PROJECTS} WHERE NOT is_active UNION "
    f"SELECT id FROM {_PROJECTS} WHERE organization_id IN "
    f"(SELECT id FROM {_ORGANIZATIONS} WHERE NOT is_active))"
)
_STANDING = "revoked_at IS NULL AND paused_at IS NULL"
_FINGERPRINT_SQL = f"""
SELECT (SELECT COUNT(*) FROM {_KEYS}),
       (SELECT COUNT(*) FROM {_KEYS} WHERE revoked_at IS NOT NULL),
       (SELECT COUNT(*) FROM {_KEYS} WHERE paused_at IS NOT NULL AND revoked_at IS NULL),
       (SELECT COUNT(*) FROM {_KEYS} WHERE {_STANDING} AND owner_id IN {_INACTIVE_OWNERS}),
       (SELECT COUNT(*) FROM {_KEYS} WHERE {_STANDING} AND project_id IN {_INACTIVE_PROJECTS}
           AND owner_id NOT IN {_INACTIVE_OWNERS}),
       (SELECT MAX(id) FROM {_KEYS}),
       (SELECT MAX(updated_at) FROM {_KEYS}),
       (SELECT MAX(id) FROM {_USERS}),
       (SELECT MAX(updated_at) FROM {_USERS}),
       (SELECT MAX(updated_at) FROM {_PROJECTS}),
       (SELECT MAX(updated_at) FROM {_ORGANIZATIONS})
"""

# As text: most keys have the same lists, which need to be read only once then.
_LISTS = {
    name: Cast(name, models.TextField())
    for name in ("scopes", "allowed_models", "allowed_endpoints", "allowed_networks")
}
_COLUMNS = (
    "id",
    "digest",
    "name",
    *(f"{name}_text" for name in _LISTS),
    "expires_at",
    "revoked_at",
    "paused_at",
    "owner_id",
    "owner__username",
    "owner__is_active",
    "project_id",
    "project__name",
    "project__is_active",
    "project__capture_hours",
    "project__organization_id",
    "project__organization__name",
    "project__organization__is_active",
)
_CHUNK_ROWS = 2000

# What is read with a key, and how a key is found by it.
_LEADS_TO_KEYS: Final[Mapping[type[Stamped], str]] = {
    ApiKey: "pk",
    User: "owner",
    Project: "project",
    Organization: "project__organization",
}


def read_fingerprint() -> Fingerprint:
    """The state of both tables, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(_FINGERPRINT_SQL)
        row = cursor.fetchone()
    assert row is not None
    return Fingerprint(Counts(*row[:5]), tuple(row[5:]))


def all_rows() -> Iterator[KeyRow]:
    """Every key."""
    return _rows(ApiKey.objects.all())


def stamps_since(moment: datetime) -> Stamps:
    """What was stamped at `moment` or later, of all that a row is made of."""
    stamps = {}
    for table in _LEADS_TO_KEYS:
        changed = table._default_manager.filter(updated_at__gte=moment).order_by()
        stamps[table] = dict(changed.values_list("pk", "updated_at"))
    return stamps


def rows_of(ids: Mapping[type[Stamped], Sequence[int]]) -> Iterator[KeyRow]:
    """The keys with these ids, and those whose owners, projects or organisations have them.

    A query for each table, because an OR over the tables would read every key.
    """
    for table, wanted in ids.items():
        for first in range(0, len(wanted), _CHUNK_ROWS):
            chunk = {f"{_LEADS_TO_KEYS[table]}__in": wanted[first : first + _CHUNK_ROWS]}
            yield from _rows(ApiKey.objects.filter(**chunk))


def _rows(keys: models.QuerySet[ApiKey]) -> Iterator[KeyRow]:
    texts = {f"{name}_text": text for name, text in _LISTS.items()}
    columns = keys.order_by().annotate(**texts).values_list(*_COLUMNS)
    return (KeyRow(*row) for row in columns.iterator(chunk_size=_CHUNK_ROWS))
