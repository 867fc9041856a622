"""The folder in which a backup is prepared, beside its file. It has copies of all secrets.

A killed process leaves its folder. The next backup into the same folder removes it: a workspace
whose lock is free belongs to no process.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

_NEW: Final = ".vinery-new-"
_PREFIX: Final = ".vinery-backup-"
_LOCK: Final = "lock"


@contextmanager
def workspace(parent: Path) -> Iterator[Path]:
    """Yield an empty folder of mode 0700 in a folder of `parent`, which is removed at the end.

    Raises OSError.
    """
    _remove_abandoned(parent)
    # It gets its name with its lock, so that no other process takes it for an abandoned one.
    new = Path(tempfile.mkdtemp(dir=parent, prefix=_NEW))
    with (new / _LOCK).open("w") as lock:
        _take(lock)
        folder = new.rename(new.with_name(new.name.replace(_NEW, _PREFIX, 1)))
        try:
            state = folder / "state"
            state.mkdir(mode=0o700)
            yield state
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        return
    # The lock may be missing: a process was killed while it removed the folder.
    with (folder / _LOCK).open("a") as lock:
        if _take(lock):
            shutil.rmtree(folder, ignore_errors=True)


def _take(lock: IO[str]) -> bool:
    """Lock a file. Returns False if another process holds it, or the file system has no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
