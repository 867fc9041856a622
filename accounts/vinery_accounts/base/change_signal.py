"""A process that keeps rows in memory learns of changes by a signal from another process of the
host, and by a very small query.

A process that has committed a change sets the time of a file in the run folder, at which listeners
look a few times a second. So no listener need query for changes all the time. A signal may come
without a change, and a change on another host comes without a signal: listeners also query now and
then, with `commit_state`.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import connection, transaction

_LOOK_INTERVAL_S: Final = 0.1


def send() -> None:
    """Signal all listeners of this home folder. Never blocks, and raises nothing."""
    with contextlib.suppress(OSError):
        _file().touch(mode=0o600)
        # Explicitly: the kernel's own times are as coarse as its ticks.
        os.utime(_file(), ns=(time.time_ns(),) * 2)


def send_after_commit() -> None:
    """Signal all listeners after the commit of the present transaction; without a transaction, at
    once."""
    waiting = connection.run_on_commit
    # A transaction of many changes needs one signal only.
    if not (waiting and waiting[-1][1] is send):
        transaction.on_commit(send)


@contextlib.contextmanager
def listening(on_change: Callable[[], None]) -> Iterator[None]:
    """Call `on_change` in the running event loop after each signal; several that are due count as
    one."""

    async def follow(seen: int) -> None:
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            if (sent := _sent_at()) != seen:
                seen = sent
                on_change()

    task = asyncio.create_task(follow(_sent_at()), name="changes")
    try:
        yield
    finally:
        task.cancel()


def _file() -> Path:
    return Path(settings.VINERY_RUN_DIR) / "changes"


def _sent_at() -> int:
    try:
        return _file().stat().st_mtime_ns
    except OSError:
        return 0


# -- Commits ------------------------------------------------------------------------------------

# Equal snapshots see the same rows: each transaction that writes has a number, and a snapshot names
# the numbers that are not visible. SQLite counts the commits of other connections.
_STATE_SQL: Final = {
    "postgresql": "SELECT pg_current_snapshot()::text",
    "sqlite": "PRAGMA data_version",
}


def commit_state() -> object:
    """A value that equals an earlier value of the same thread only if no other connection has
    committed since. Values may differ without a commit. Raises `django.db.Error`."""
    with connection.cursor() as cursor:
        cursor.execute(_STATE_SQL[connection.vendor])
        row = cursor.fetchone()
    # SQLite's number means nothing to another connection, and PostgreSQL's has no end.
    own = connection.connection if connection.vendor == "sqlite" else None
    return own, row
