"""Ties a process to its parent, so that no child outlives a supervisor that was killed.

On Linux the kernel sends SIGTERM at the parent's death. Everywhere a thread looks at the
parent's id: it covers other systems, a parent that died before the kernel was asked, and a
child that does not end on SIGTERM.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

# The supervisor names itself to its children with this.
PARENT_VARIABLE = "VINERY_PARENT_PID"

# As long as the supervisor gives a child to end.
GRACE_S = 7.0
_LOOK_EVERY_S = 1.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def hold_to_named_parent() -> None:
    """Tie this process to the parent that the environment names; do nothing without one.

    The variable is removed, so that grandchildren are not tied to a grandparent.
    """
    parent_pid = os.environ.pop(PARENT_VARIABLE, "")
    if parent_pid:
        hold_to(int(parent_pid))


def hold_to(parent_pid: int, *, grace_s: float = GRACE_S) -> None:
    """End this process when the parent dies: SIGTERM at once, SIGKILL after the grace."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    watch = threading.Thread(target=_watch, args=(parent_pid, grace_s), name="tether", daemon=True)
    watch.start()


def _watch(parent_pid: int, grace_s: float) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with processes of our own, if any are left
    os.kill(os.getpid(), signal.SIGKILL)
