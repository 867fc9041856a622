"""Which database: SQLite in the home folder, or what DATABASE_URL names."""

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
    """SQLite as a server needs it.

    IMMEDIATE: a transaction that first reads and then writes cannot wait for another
    writer, it fails at once; one that starts as a writer waits its turn. WAL: readers do
    not wait for writers. NORMAL: a power cut may undo the last commits, a crash does not.
    """
    options = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # Tests use a file too: threads that share Django's in-memory database get "table is
    # locked" at once, where they would wait on a file.
    return parsed | {"NAME": name, "OPTIONS": options, "TEST": {"NAME": f"{name}.test"}}


def _postgresql(parsed: dict[str, Any]) -> dict[str, Any]:
    """PostgreSQL with a pool for each process.

    Under ASGI a connection that is kept for a thread outlives its request for nothing;
    from a pool, 20 requests that wait for tokens hold no connection.

    A host that is gone without a word is noticed in seconds: by itself TCP waits for a quarter
    of an hour. The address may say otherwise, in libpq's own words.
    """
    options = {"connect_timeout": 5, "tcp_user_timeout": 10_000, **parsed.get("OPTIONS", {})}
    # The pool tries again later and later, up to minutes; given up, it tries when it is asked.
    options["pool"] = {"min_size": 1, "max_size": 10, "timeout": 5, "reconnect_timeout": 3}
    return parsed | {"OPTIONS": options, "CONN_MAX_AGE": 0}
