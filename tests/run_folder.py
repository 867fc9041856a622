"""The folder for all temporary files of one run of the tests.

The maker of the folder removes it at the end; the processes of pytest-xdist, and all processes
that tests start, inherit the folder. A later run removes the folder of a killed run.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

_VARIABLE: Final = "VINERY_TEST_FOLDER"
_PREFIX: Final = "vinery-testrun-"
# A folder this young may have no lock yet.
_LEAST_AGE_S: Final = 60.0


def enter() -> None:
    """Let this process and its children put temporary files there."""
    if _VARIABLE in os.environ:
        return
    root = Path(tempfile.gettempdir())
    for folder in root.glob(f"{_PREFIX}*"):
        _remove_if_left(folder)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)  # until this process ends
    atexit.register(_remove, folder, os.getpid())
    # The folders of `tmp_path` stay for a look at a failure: pytest removes those of older runs.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(root))
    os.environ[_VARIABLE] = os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # forget the one that was asked for above


def _remove_if_left(folder: Path) -> None:
    try:
        if time.time() - folder.stat().st_mtime < _LEAST_AGE_S:
            return
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # another run removes the folder, or another user owns it
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:  # its run goes on
        pass
    finally:
        os.close(handle)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # and no process that it has forked
        shutil.rmtree(folder, ignore_errors=True)
