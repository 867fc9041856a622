"""A lock that allows one supervisor for each home folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinery.config.env import SettingError


@contextmanager
def hold(file: Path) -> Iterator[None]:
    """Hold the lock, at most until this process dies. Raises `SettingError` if another holds it."""
    with file.open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise SettingError(
                f"The home folder {file.parent.parent} is in use by process {holder}. "
                "Stop that one, or set VINERY_HOME to another folder."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
