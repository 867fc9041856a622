"""A process that keeps rows in memory learns of changes by a signal from another process of the
host, and by a very small query.

Each listener reads a named pipe in a folder of the run folder. A process that has committed a
change writes a byte to all pipes. So no listener need query for changes all the time. A signal may
come without a change, and a change on another host comes without a signal: listeners also query now
and then, with `commit_state`.
"""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import connection, transaction

log = logging.getLogger(__name__)

_FOLDER: Final = "changes"
# More than a pipe holds: one read empties it.
_ALL_BYTES: Final = 1 << 20


def send() -> None:
    """Signal all listeners of this home folder. Never blocks, and raises nothing."""
    with contextlib.suppress(OSError):
        for path in _folder().iterdir():
            if not path.name.startswith("."):
                _signal(path)


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
    one. Without a pipe a warning is logged, and the caller sees changes by its own queries."""
    try:
        path, fd = _new_pipe()
    except OSError as error:
        log.warning("changes are not signalled: %s", error)
        yield
        return

    def on_readable() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, _ALL_BYTES)
        on_change()

    loop = asyncio.get_running_loop()
    loop.add_reader(fd, on_readable)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        path.unlink(missing_ok=True)
        os.close(fd)


def _new_pipe() -> tuple[Path, int]:
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{os.getpid()}-{secrets.token_hex(4)}"
    # A pipe gets the name after the reader: a sender removes a pipe without a reader.
    draft = folder / f".{path.name}"
    os.mkfifo(draft, 0o600)
    # Open for writing too: the end of the last sender would else be an event for ever.
    fd = os.open(draft, os.O_RDWR | os.O_NONBLOCK)
    draft.rename(path)
    return path, fd


def _folder() -> Path:
    return Path(settings.VINERY_RUN_DIR) / _FOLDER


def _signal(path: Path) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its listener was killed
            path.unlink(missing_ok=True)
        return
    with os.fdopen(fd, "wb", buffering=0) as pipe:
        pipe.write(b"\n")  # does nothing if the pipe is full, which has enough signals


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
