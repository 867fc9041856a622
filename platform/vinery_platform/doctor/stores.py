"""Checks of settings, database and Redis. They load Django and create nothing."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from vinery_platform.doctor.finding import Finding, failure, ok, warning

_REDIS_TIMEOUT_S: Final = 3.0
# What limits by the minute bear.
_SKEW_S: Final = 2.0


def database() -> Iterator[Finding]:
    """Whether it answers, its schema and its clock."""
    from django.db import Error as DatabaseError
    from django.db import connection

    if connection.vendor == "sqlite" and not Path(connection.settings_dict["NAME"]).is_file():
        yield ok("database", "There is none yet: `vinery up` makes it.")
        return
    # A pool tries again for seconds, and hides the reason.
    connection.settings_dict["OPTIONS"].pop("pool", None)
    try:
        with connection.cursor() as cursor:
            yield _version(cursor, connection.vendor)
            yield from _clock(cursor, connection.vendor)
        yield _schema()
    except DatabaseError as error:
        reason = " ".join(str(error).split())
        cure = "Start the database server, and correct DATABASE_URL."
        if connection.vendor == "sqlite":
            cure = "Restore the file from a backup, see docs/deployment.md."
        yield failure("database", f"It cannot be used: {reason}", cure)


def _version(cursor: Any, vendor: str) -> Finding:
    if vendor != "sqlite":
        return ok("database", f"PostgreSQL {_one(cursor, 'SHOW server_version')} answers.")
    mode = _one(cursor, "PRAGMA journal_mode")
    text = f"SQLite {sqlite3.sqlite_version}, journal mode {mode}."
    if mode != "wal":
        return warning("database", text, "Put the home on a local disk: WAL needs shared memory.")
    return ok("database", text)


def _clock(cursor: Any, vendor: str) -> Iterator[Finding]:
    if vendor == "sqlite":  # it has no clock of its own
        return
    skew_s = float(_one(cursor, "SELECT extract(epoch FROM clock_timestamp())")) - time.time()
    yield _skew("database clock", "database server", skew_s)


def _skew(check: str, who: str, skew_s: float) -> Finding:
    text = f"The clock of the {who} differs by {skew_s:+.1f} s."
    if abs(skew_s) > _SKEW_S:
        return warning(check, text, "Let NTP set the clocks of both: timedatectl set-ntp true")
    return ok(check, text)


def _schema() -> Finding:
    """Whether the tables are those of this version."""
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    known = set(executor.loader.disk_migrations)
    newer = sorted(name for name in executor.loader.applied_migrations if _is_newer(name, known))
    if newer:
        return failure(
            "schema",
            f"The database is of a newer version: {newer[-1][1]} is unknown here.",
            "Run the newer version of Vinery, or restore a backup of this one.",
        )
    if pending:
        text = f"{len(pending)} migrations are pending."
        return warning("schema", text, "vinery up applies them, and so does vinery prepare.")
    return ok("schema", "It is up to date.")


def _is_newer(migration: tuple[str, str], known: set[tuple[str, str]]) -> bool:
    """Whether a migration of our own apps is unknown to this version."""
    return migration not in known and migration[0] in {app for app, _ in known}


def _one(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return cursor.fetchone()[0]


def redis() -> Iterator[Finding]:
    from django.conf import settings

    if not settings.VINERY_REDIS_URL:
        several = settings.VINERY_WEB_WORKERS > 1
        text = "It is not used"
        if several:
            text += ": each web process counts an equal share of every limit"
        yield ok("redis", f"{text}.")
        return
    import redis as client

    try:
        server = client.Redis.from_url(
            settings.VINERY_REDIS_URL,
            socket_timeout=_REDIS_TIMEOUT_S,
            socket_connect_timeout=_REDIS_TIMEOUT_S,
        )
        seconds, microseconds = server.time()
    except (client.RedisError, OSError) as error:
        yield failure(
            "redis", f"It does not answer: {error}", "Start Redis, and correct REDIS_URL."
        )
        return
    yield ok("redis", "It answers.")
    yield _skew("redis clock", "Redis server", seconds + microseconds / 1e6 - time.time())


def proxy() -> Iterator[Finding]:
    """Whether address, public URL and proxies fit each other."""
    from django.conf import settings

    address, public_url = settings.VINERY_ADDRESS, settings.VINERY_PUBLIC_URL
    if public_url.startswith("http://") and not address.is_loopback:
        yield warning(
            "public URL",
            f"{public_url} has no TLS: passwords and keys cross the network in the clear.",
            "Put a proxy with TLS in front, and set VINERY_PUBLIC_URL to its https URL.",
        )
    elif not public_url and not address.is_loopback:
        yield warning(
            "public URL",
            f"The server listens on {address.host} without TLS and without a public URL.",
            "Put a proxy with TLS in front and set VINERY_PUBLIC_URL, or VINERY_HOST=127.0.0.1.",
        )
    elif public_url and not address.is_loopback and _only_this_machine(settings):
        yield warning(
            "public URL",
            f"{public_url}: only proxies of this machine are trusted, but others may connect.",
            "Set VINERY_TRUSTED_PROXIES to the proxy's network, or VINERY_HOST=127.0.0.1.",
        )
    else:
        yield ok("public URL", public_url or "none: the server is for this machine alone")


def _only_this_machine(settings: Any) -> bool:
    return all(network.is_loopback for network in settings.VINERY_TRUSTED_PROXIES)


def alerts() -> Iterator[Finding]:
    """Whether alerts reach anyone who does not look at the console."""
    from django.conf import settings
    from django.db import Error as DatabaseError

    from vinery_accounts.models import Webhook

    try:
        num_webhooks = Webhook.objects.filter(is_active=True).count()
    except DatabaseError:  # reported above
        num_webhooks = 0
    if settings.VINERY_HAS_EMAIL or num_webhooks:
        email = "e-mail" if settings.VINERY_HAS_EMAIL else "no e-mail"
        yield ok("alerts", f"{email}, {num_webhooks} webhooks")
    elif settings.VINERY_PUBLIC_URL:
        yield warning(
            "alerts",
            "Alerts are on the pages only: there is neither an e-mail server nor a webhook.",
            "Set VINERY_EMAIL_URL, or: vinery alerts --help",
        )
    else:
        yield ok("alerts", "on the pages only")


CHECKS: Final = (database, redis, proxy, alerts)
