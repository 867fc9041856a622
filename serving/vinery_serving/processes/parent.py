"""Ends a process with its parent, so that a kill leaves no process behind.

On Linux the kernel sends a signal when the parent dies. A worker, a job or an exporter is killed at
once. A service of the supervisor first gets SIGTERM and some time.
"""

import ctypes
import os
import select
import signal
import sys
import threading
import time
from typing import Final

# The supervisor passes its process id to the children in this variable.
PARENT_VARIABLE: Final = "VINERY_PARENT_PID"
# The time that the supervisor gives a child to end.
GRACE_S: Final = 7.0

_POLL_S: Final = 1.0
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
# The parent that this process watches.
_watched: list[int] = []


def prctl(option: int, value: int) -> bool:
    """Set an option of linux/prctl.h for this process. Returns False if this system cannot."""
    return sys.platform == "linux" and not ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def signal_at_its_end(number: int) -> None:
    """Let the kernel send this signal when the parent dies; 0: none. Only Linux can."""
    prctl(_PR_SET_PDEATHSIG, number)


def end_with(parent_pid: int) -> None:
    """Let the kernel kill this process when the parent dies. Ends it at once if that has happened
    already."""
    signal_at_its_end(signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def is_orphan() -> bool:
    """Whether the parent that this process watches has died."""
    return bool(_watched) and os.getppid() not in _watched


def end_gently_with_named_parent() -> None:
    """Watch the parent that the environment names, if any. Grandchildren do not watch it."""
    if parent_pid := os.environ.pop(PARENT_VARIABLE, ""):
        end_gently_with(int(parent_pid))


def end_gently_with(parent_pid: int, *, grace_s: float = GRACE_S) -> None:
    """End this process when the parent dies: SIGTERM at once, SIGKILL after the grace period. A
    thread also polls the parent's id: for other systems, for a parent that is dead already, and for
    a process that ignores SIGTERM."""
    _watched[:] = [parent_pid]
    signal_at_its_end(signal.SIGTERM)
    threading.Thread(target=_watch, args=(parent_pid, grace_s), daemon=True).start()


def _watch(parent_pid: int, grace_s: float) -> None:
    _wait_for_end(parent_pid)
    while os.getppid() == parent_pid:
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with the children of this process
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_end(parent_pid: int) -> None:
    """Wait for the parent's end without polling. Returns earlier if this system cannot."""
    try:
        fd = os.pidfd_open(parent_pid)
    except (AttributeError, OSError):  # another system, or the parent is dead already
        return
    try:
        # The id may have a new owner only if this process has a new parent.
        if os.getppid() == parent_pid:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll()
    finally:
        os.close(fd)
