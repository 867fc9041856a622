"""A signal between the processes of a host: rows that others keep in memory have changed.

Each listener reads a named pipe in a folder of the run folder, and a process that has committed a
change writes a byte to all of them. So what keeps rows in memory need not ask for changes all the
time. A signal may come without a change, and a change on another host comes without a signal:
listeners look now and then by themselves, too.
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
    """Signal all listeners when the present transaction is committed; without one, at once."""
    waiting = connection.run_on_commit
    # A transaction of many changes needs one signal only.
    if not (waiting and waiting[-1][1] is send):
        transaction.on_commit(send)


@contextlib.contextmanager
def listening(on_change: Callable[[], None]) -> Iterator[None]:
    """Call `on_change` in the event loop after each signal. Without a pipe a warning is logged, and
    changes are seen when the caller looks by itself."""
    listener = None
    try:
        listener = Listener(on_change)
    except OSError as error:
        log.warning("changes are not signalled: %s", error)
    try:
        yield
    finally:
        if listener is not None:
            listener.close()


class Listener:
    """Calls `on_change` in the event loop after each signal; several that are due count as one."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """Listens until `close`. Needs a running event loop. Raises OSError."""
        folder = _folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._on_change = on_change
        self._path = folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        # Under its name a pipe has a reader from the beginning: without one, a sender removes it.
        draft = folder / f".{self._path.name}"
        os.mkfifo(draft, 0o600)
        # Open for writing too: the end of the last sender would else be an event for ever.
        self._fd = os.open(draft, os.O_RDWR | os.O_NONBLOCK)
        draft.rename(self._path)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._on_readable)

    def close(self) -> None:
        """Listen no more. May be called again."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, _ALL_BYTES)
        self._on_change()


def _folder() -> Path:
    return Path(settings.VINERY_RUN_DIR) / _FOLDER


def _signal(path: Path) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its listener was killed
            path.unlink(missing_ok=True)
        return
    try:
        # A full pipe has enough signals in it.
        with contextlib.suppress(BlockingIOError):
            os.write(fd, b"\n")
    finally:
        os.close(fd)
