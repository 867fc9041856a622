"""Whether there was a commit since, for the price of one very small query."""

from typing import Final

from django.db import connection

# Equal snapshots see the same rows: each transaction that writes has a number, and they name those
# that are not visible. SQLite counts the commits of other connections.
_STATE_SQL: Final = {
    "postgresql": "SELECT pg_current_snapshot()::text",
    "sqlite": "PRAGMA data_version",
}


def commit_state() -> object:
    """A value that is equal to an earlier one of the same thread only if no other connection has
    committed since. It may differ without a commit. Raises `django.db.Error`."""
    with connection.cursor() as cursor:
        cursor.execute(_STATE_SQL[connection.vendor])
        row = cursor.fetchone()
    # SQLite's number means nothing to another connection, and PostgreSQL's has no end.
    own = connection.connection if connection.vendor == "sqlite" else None
    return own, row
