"""Where platforms under test keep their data: files, or with VINERY_TEST_SCALED=1 servers.

Scaled, every home folder has a database of PostgreSQL and one of Redis for itself, and two web
processes. The servers are those of VINERY_TEST_POSTGRES_URL and VINERY_TEST_REDIS_URL.
"""

import atexit
import os
import uuid
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg
import redis

IS_SCALED: Final = bool(os.environ.get("VINERY_TEST_SCALED"))
NUM_WEB_PROCESSES: Final = 2 if IS_SCALED else 1

# Counts the used databases, in the first one of Redis, which no test uses.
_COUNTER: Final = "vinery-tests:databases"

# By home folder.
_SERVERS: Final[dict[Path, dict[str, str]]] = {}


def environment_of(home: Path, *, template: str | None = None) -> dict[str, str]:
    """The settings of a process that belongs to the installation with this home folder.

    Scaled, its database begins as a copy of the one at the URL `template`.
    """
    return {"VINERY_HOME": str(home), **(_servers_of(home, template) if IS_SCALED else {})}


def environment_of_tests() -> dict[str, str]:
    """The settings of the test process itself, whose databases pytest-django makes."""
    if not IS_SCALED:
        return {}
    return {"DATABASE_URL": _postgres_server(), "REDIS_URL": new_redis_database()}


def new_postgres_database(template: str | None = None) -> str:
    """The URL of a new database, empty or a copy of another one without connections.

    The database is dropped when the tests end.
    """
    server = _postgres_server()
    name = f"vinery_{uuid.uuid4().hex}"
    copied = f" TEMPLATE {urlsplit(template).path.strip('/')}" if template else ""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}{copied}")
    atexit.register(_drop, server, name)
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def _servers_of(home: Path, template: str | None) -> dict[str, str]:
    # Kept: a second start with the same home finds what the first has left.
    if home not in _SERVERS:
        _SERVERS[home] = _new_servers(template)
    return _SERVERS[home]


def _new_servers(template: str | None) -> dict[str, str]:
    return {
        "DATABASE_URL": new_postgres_database(template),
        "REDIS_URL": new_redis_database(),
        "VINERY_WEB_WORKERS": str(NUM_WEB_PROCESSES),
    }


def new_redis_database() -> str:
    """The next one by number, emptied. After the last comes the first again: a server must have
    more than there are platforms at a time."""
    server = urlsplit(os.environ["VINERY_TEST_REDIS_URL"])
    with redis.Redis.from_url(server._replace(path="/0").geturl()) as client:
        num_databases = int(client.config_get("databases")["databases"])
        number = 1 + client.incr(_COUNTER) % (num_databases - 1)
    url = server._replace(path=f"/{number}").geturl()
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


def _postgres_server() -> str:
    return os.environ["VINERY_TEST_POSTGRES_URL"]


def _drop(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
