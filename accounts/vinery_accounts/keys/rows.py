"""The queries of the key table: counts of all keys, recent changes, and rows."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from django.db import connection, models
from django.db.models.functions import Cast

from vinery_accounts.base.querysets import Stamped
from vinery_accounts.models import ApiKey, Organization, Project, User


class KeyRow(NamedTuple):
    """One key with columns of its owner, project and organisation, named by their lookups."""

    id: int
    digest: str
    name: str
    # JSON as text: most keys have the same lists, so each text is parsed only once.
    scopes_text: str
    allowed_models_text: str
    allowed_endpoints_text: str
    allowed_networks_text: str
    expires_at: datetime | None
    revoked_at: datetime | None
    paused_at: datetime | None
    owner_id: int
    owner__username: str
    owner__is_active: bool
    owner__is_superuser: bool
    project_id: int
    project__name: str
    project__is_active: bool
    project__capture_hours: int
    project__hashes_end_users: bool
    project__response_days: int | None
    project__max_stored_mb: int
    project__organization_id: int
    project__organization__name: str
    project__organization__is_active: bool


class Counts(NamedTuple):
    """Numbers of all keys and of refused keys, each counted for its first reason in this order."""

    num_keys: int
    num_revoked: int
    num_paused: int
    num_owner_inactive: int
    num_project_inactive: int


Stamps = Mapping[type[Stamped], Mapping[int, object]]
"""`updated_at` by primary key, for each model, in the type that the database returns."""

# Scalar subqueries: an index answers each of them, but not several aggregates over one table.
_KEYS, _USERS = ApiKey._meta.db_table, User._meta.db_table
_PROJECTS, _ORGANIZATIONS = Project._meta.db_table, Organization._meta.db_table
_INACTIVE_OWNERS = f"(SELECT id FROM {_USERS} WHERE NOT is_active)"
_INACTIVE_PROJECTS = (
    f"(SELECT id FROM {_PROJECTS} WHERE NOT is_active UNION "
    f"SELECT id FROM {_PROJECTS} WHERE organization_id IN "
    f"(SELECT id FROM {_ORGANIZATIONS} WHERE NOT is_active))"
)
_VALID = "revoked_at IS NULL AND paused_at IS NULL"
_COUNTS_SQL = f"""
SELECT (SELECT COUNT(*) FROM {_KEYS}),
       (SELECT COUNT(*) FROM {_KEYS} WHERE revoked_at IS NOT NULL),
       (SELECT COUNT(*) FROM {_KEYS} WHERE paused_at IS NOT NULL AND revoked_at IS NULL),
       (SELECT COUNT(*) FROM {_KEYS} WHERE {_VALID} AND owner_id IN {_INACTIVE_OWNERS}),
       (SELECT COUNT(*) FROM {_KEYS} WHERE {_VALID} AND project_id IN {_INACTIVE_PROJECTS}
           AND owner_id NOT IN {_INACTIVE_OWNERS}),
       (SELECT COUNT(*) FROM {_USERS} WHERE is_superuser)
"""

_TEXTS = {
    f"{name}_text": Cast(name, models.TextField())
    for name in ("scopes", "allowed_models", "allowed_endpoints", "allowed_networks")
}
_CHUNK_ROWS = 2000

# The models whose columns a row has, and the lookup from each of them to keys.
_LOOKUPS: Final[Mapping[type[Stamped], str]] = {
    ApiKey: "pk",
    User: "owner",
    Project: "project",
    Organization: "project__organization",
}


# By the ORM, such queries take twenty times as long to build as to run.
_STAMPS_SQL = " UNION ALL ".join(
    f"SELECT {number}, id, updated_at FROM {table._meta.db_table} WHERE updated_at >= %s"
    for number, table in enumerate(_LOOKUPS)
)


def read_counts() -> tuple[Counts, int]:
    """The counts of keys, and the number of superusers."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS_SQL)
        *counts, num_superusers = cursor.fetchone()
    return Counts(*counts), num_superusers


def all_rows() -> Iterator[KeyRow]:
    return _rows(ApiKey.objects.all())


def stamps_since(moment: datetime) -> Stamps:
    since = connection.ops.adapt_datetimefield_value(moment)
    stamps: list[dict[int, object]] = [{} for _ in _LOOKUPS]
    with connection.cursor() as cursor:
        cursor.execute(_STAMPS_SQL, [since] * len(stamps))
        for number, pk, stamp in cursor.fetchall():
            stamps[number][pk] = stamp
    return dict(zip(_LOOKUPS, stamps, strict=True))


def rows_of(ids: Mapping[type[Stamped], Sequence[int]]) -> Iterator[KeyRow]:
    """The rows of these keys, and of the keys of these users, projects and organisations. One query
    for each model, because an OR over several tables would read every key."""
    for table, wanted in ids.items():
        for first in range(0, len(wanted), _CHUNK_ROWS):
            chunk = {f"{_LOOKUPS[table]}__in": wanted[first : first + _CHUNK_ROWS]}
            yield from _rows(ApiKey.objects.filter(**chunk))


def _rows(keys: models.QuerySet[ApiKey]) -> Iterator[KeyRow]:
    columns = keys.order_by().annotate(**_TEXTS).values_list(*KeyRow._fields)
    return (KeyRow(*row) for row in columns.iterator(chunk_size=_CHUNK_ROWS))
