"""What the key table reads from the database: a fingerprint, and rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import connection, models

from accounts.models import ApiKey, User


class KeyRow(NamedTuple):
    """One key with what matters of its owner."""

    key_id: int
    digest: str
    name: str
    expires_at: datetime | None
    revoked_at: datetime | None
    owner_id: int
    username: str
    is_owner_active: bool


class Counts(NamedTuple):
    """How many keys there are: all, the revoked, and of the others those whose owner is
    inactive."""

    num_keys: int
    num_revoked: int
    num_owner_inactive: int


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Two that are equal mean that, as far as an index can tell, nothing changed.

    `marks` are the newest ids and stamps, in whatever type the database returns.
    """

    counts: Counts
    marks: tuple[object, ...]


# Scalar subqueries, because each one alone is answered from an index, which several
# aggregates over one table are not.
_FINGERPRINT_SQL = f"""
SELECT (SELECT COUNT(*) FROM {ApiKey._meta.db_table}),
       (SELECT COUNT(*) FROM {ApiKey._meta.db_table} WHERE revoked_at IS NOT NULL),
       (SELECT COUNT(*) FROM {ApiKey._meta.db_table} WHERE revoked_at IS NULL AND owner_id IN
           (SELECT id FROM {User._meta.db_table} WHERE NOT is_active)),
       (SELECT MAX(id) FROM {ApiKey._meta.db_table}),
       (SELECT MAX(updated_at) FROM {ApiKey._meta.db_table}),
       (SELECT MAX(id) FROM {User._meta.db_table}),
       (SELECT MAX(updated_at) FROM {User._meta.db_table})
"""

_COLUMNS = (
    "id",
    "digest",
    "name",
    "expires_at",
    "revoked_at",
    "owner_id",
    "owner__username",
    "owner__is_active",
)
_CHUNK_ROWS = 2000


def read_fingerprint() -> Fingerprint:
    """The state of both tables, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(_FINGERPRINT_SQL)
        row = cursor.fetchone()
    assert row is not None
    return Fingerprint(Counts(*row[:3]), tuple(row[3:]))


def all_rows() -> Iterator[KeyRow]:
    """Every key."""
    return _rows(ApiKey.objects.all())


def rows_since(moment: datetime) -> Iterator[KeyRow]:
    """The keys that were stamped at `moment` or later, or whose owners were.

    Two queries, because an OR over both tables would read every key.
    """
    yield from _rows(ApiKey.objects.filter(updated_at__gte=moment))
    owners = User.objects.filter(updated_at__gte=moment)
    yield from _rows(ApiKey.objects.filter(owner__in=owners))


def _rows(keys: models.QuerySet[ApiKey]) -> Iterator[KeyRow]:
    columns = keys.order_by().values_list(*_COLUMNS)
    return (KeyRow(*row) for row in columns.iterator(chunk_size=_CHUNK_ROWS))
