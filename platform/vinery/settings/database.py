"""The database: SQLite in the home folder, or the one in DATABASE_URL."""

from __future__ import annotations

from typing import Any

import dj_database_url

from vinery.config import env
from vinery.config.home import Home

_SCHEMES = ("postgres", "postgresql", "sqlite")


def database(home: Home) -> dict[str, Any]:
    """Django's settings of the default database. Raises `SettingError` for other schemes."""
    address = env.secret_url("DATABASE_URL", schemes=_SCHEMES)
    if not address:
        return _sqlite({"ENGINE": "django.db.backends.sqlite3"}, str(home.path / "vinery.sqlite3"))
    parsed = dict(dj_database_url.parse(address))
    if address.startswith("sqlite"):
        return _sqlite(parsed, str(parsed["NAME"]))
    return _postgresql(parsed)


def _sqlite(parsed: dict[str, Any], name: str) -> dict[str, Any]:
    """SQLite with options for a server.

    IMMEDIATE: a deferred transaction that reads first and then writes fails at once if another
    transaction writes; an immediate one waits. WAL: readers do not wait for writers. NORMAL: a
    power failure may lose the last commits, a crash of a process does not.
    """
    options = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # Tests use a file too: threads that share Django's in-memory database get "table is locked"
    # at once, but wait for a file.
    return parsed | {"NAME": name, "OPTIONS": options, "TEST": {"NAME": f"{name}.test"}}


def _postgresql(parsed: dict[str, Any]) -> dict[str, Any]:
    """PostgreSQL with a connection pool for each process.

    Under ASGI a connection that a thread keeps is idle after its request. With a pool, requests
    that wait for tokens hold no connection.

    `tcp_user_timeout` detects a dead host in seconds; TCP's default is a quarter of an hour. The
    URL may override both options of libpq.
    """
    options = {"connect_timeout": 5, "tcp_user_timeout": 10_000, **parsed.get("OPTIONS", {})}
    # The pool retries after growing delays, up to minutes. With this limit it gives up soon, and
    # tries again at the next request.
    options["pool"] = {"min_size": 1, "max_size": 10, "timeout": 5, "reconnect_timeout": 3}
    return parsed | {"OPTIONS": options, "CONN_MAX_AGE": 0}
