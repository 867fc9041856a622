"""`python -m benchmarks.keys`: how long it takes to know who calls, among very many keys.

Fills a new SQLite file, and a PostgreSQL server of its own if this machine has one installed,
with keys, reads them as a web process does when it starts, and authenticates. Ends with 1 when
an aim is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from benchmarks.databases import on_each_database, set_up_django
from benchmarks.progress import show

_MOST_AUTHENTICATION_US: Final = 5.0
_MOST_START_S: Final = 2.0
_NUM_OWNERS: Final = 1000
_NUM_ROUNDS: Final = 10
_NUM_IN_A_ROUND: Final = 20_000


def main(argv: list[str] | None = None) -> int:
    """Measure both databases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keys")
    parser.add_argument("--keys", type=int, default=100_000, help="default: 100,000")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if not arguments.here:
        return max(on_each_database("benchmarks.keys", sys.argv[1:]))
    set_up_django()
    return _measure(arguments.keys)


def _measure(num_keys: int) -> int:
    from django.db import connection

    from vinery_accounts.keys.table import KeyTable

    show(f"{connection.vendor}: writing {num_keys:,} keys")
    secret = _write_keys(num_keys)
    table = KeyTable()
    start_s = _took_s(table.refresh)
    refresh_s = min(_took_s(table.refresh) for _ in range(_NUM_ROUNDS))
    header = f"Bearer {secret}"

    def authenticate() -> None:
        for _ in range(_NUM_IN_A_ROUND):
            table.authenticate(header)

    # The best of some: what else runs here only adds.
    each_us = min(_took_s(authenticate) for _ in range(_NUM_ROUNDS)) / _NUM_IN_A_ROUND * 1e6
    print(f"\n{connection.vendor}, {len(table):,} keys\n")
    print(f"{'authenticate a request':40}{each_us:9.2f} us")
    print(f"{'read all keys at the start':40}{start_s:9.2f} s")
    print(f"{'look for changes, of which there are none':40}{refresh_s * 1000:8.2f} ms")
    return 0 if each_us < _MOST_AUTHENTICATION_US and start_s < _MOST_START_S else 1


def _write_keys(num_keys: int) -> str:
    """Returns the secret of one of them."""
    from vinery_accounts.keys.lifecycle import create_key
    from vinery_accounts.keys.secrets import digest_of, hint_of, key_peppers, new_secret
    from vinery_accounts.models import ApiKey, User
    from vinery_accounts.services.changes import home_project

    owners = [User.objects.create_user(f"user-{number}") for number in range(_NUM_OWNERS)]
    projects = [home_project(owner) for owner in owners]
    pepper_id, pepper = max(key_peppers().items())
    keys = []
    for number in range(num_keys - 1):
        secret = new_secret()
        keys.append(
            ApiKey(
                owner=owners[number % _NUM_OWNERS],
                project=projects[number % _NUM_OWNERS],
                name=f"key {number}",
                hint=hint_of(secret),
                digest=digest_of(secret.encode(), pepper).hex(),
                pepper_id=pepper_id,
            )
        )
    ApiKey.objects.bulk_create(keys, batch_size=5000)
    secret = create_key(owner=owners[0], name="calls").secret
    _age()
    return secret


def _age() -> None:
    """As if all of it had been made an hour ago: what is new is read again for half a minute,
    and both databases have looked at a table of that age."""
    from django.db import connection
    from django.utils import timezone

    from vinery_accounts.models import ApiKey, Organization, Project, User

    for table in (ApiKey, User, Project, Organization):
        table._default_manager.update(updated_at=timezone.now() - timedelta(hours=1))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM" if connection.vendor == "sqlite" else "VACUUM ANALYZE")


def _took_s(call: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    call()
    return time.perf_counter() - begun_s


if __name__ == "__main__":
    sys.exit(main())
