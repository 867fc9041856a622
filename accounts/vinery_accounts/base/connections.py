"""Connections to the database outside of requests, where Django closes none."""

import functools
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from django.db import close_old_connections, connection, connections

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


def giving_back(work: Callable[ParametersT, ResultT]) -> Callable[ParametersT, ResultT]:
    """The same work of a thread, which gives the thread's connection back at the end.

    After a failure the connection is closed without a question to the server: the thread would
    otherwise meet the dead connection again at its next work, which may be minutes later.
    """

    @functools.wraps(work)
    def run(*args: ParametersT.args, **kwargs: ParametersT.kwargs) -> ResultT:
        try:
            return work(*args, **kwargs)
        except DATABASE_UNAVAILABLE:
            connections.close_all()
            raise
        finally:
            close_old_connections()

    return run


class DatabaseLock:
    """A lock of the whole database, which one process holds until the process ends.

    PostgreSQL gives the lock to a connection, so no clocks are compared. SQLite needs none: its
    file is in a home folder, which has one supervisor.
    """

    def __init__(self, number: int, name: str) -> None:
        """`name` of this process, with which others are refused."""
        self._number = number
        self._name = name
        self._connection: Any = None

    def other_holder(self) -> str:
        """Take the lock. Returns who else holds the lock; empty: this process does.

        Raises `django.db.Error`.
        """
        if connection.vendor != "postgresql":
            return ""
        try:
            with connection.wrap_database_errors:
                self._connection = self._connection or _connect(self._name)
                named = {"number": self._number}
                return str(self._connection.execute(_TAKE, named).fetchone()[0])
        except DATABASE_UNAVAILABLE:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


_TAKE: Final = """
    SELECT CASE WHEN pg_try_advisory_lock(%(number)s) THEN '' ELSE coalesce((
        SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE locktype = 'advisory' AND granted AND objid = %(number)s
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ), 'another process') END
"""


def _connect(name: str) -> Any:
    import psycopg

    parameters = connection.get_connection_params()
    # When the host of the holder has died, the server notices it after half a minute.
    kept = " ".join(f"-c tcp_keepalives_{each}" for each in ("idle=15", "interval=5", "count=3"))
    named = {"application_name": name, "options": f"{parameters.get('options', '')} {kept}"}
    return psycopg.connect(**parameters | named, autocommit=True)
