"""Processes as forks of one that has imported what they need.

A fork takes milliseconds where imports take a second, and shares the memory of its code. The
process that forks has no threads. The fork gets the environment, the descriptors and the command
line that a program would get, and becomes a child of the nearest ancestor that adopts orphans.
"""

import ctypes
import fcntl
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

# How long a fork may take on a busy machine. Meanwhile the process that asks does nothing else.
_WITHIN_S: Final = 5.0
_MAX_BYTES: Final = 1 << 18
_MAX_FDS: Final = 16
_MAX_ANSWER_BYTES: Final = 16
_POLL_S: Final = 0.001
# Of /proc/PID/stat, after the name: where the words of the command line begin and end.
_ARGUMENTS: Final = slice(45, 47)


class Forks:
    """The side that asks for forks."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def fork(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        fds: Sequence[int],
        group: int = 0,
    ) -> int | None:
        """Return the id of a fork that runs a command, or None. `group`: of processes, that the
        fork joins; 0: its own."""
        request = json.dumps((argv, dict(environment), fds, group)).encode()
        ours, theirs = socket.socketpair()
        ours.settimeout(_WITHIN_S)
        with ours, suppress(OSError, ValueError):
            with theirs:
                socket.send_fds(self._control, [request], [*fds, theirs.fileno()])
            return int(ours.recv(_MAX_ANSWER_BYTES))
        return None


# Who forks worker processes' servers for this process, if any.
for_workers: Forks | None = None


def serve(control: socket.socket) -> list[str] | None:
    """Fork for each request until the socket closes. Returns the command in a fork that has to run
    it, and None at the end."""
    while True:
        request, fds, _, _ = socket.recv_fds(control, _MAX_BYTES, _MAX_FDS)
        if not request:
            return None
        parent = os.fork()
        if parent == 0:
            parent = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == parent:  # signals at the parent's end are for the next parent
                time.sleep(_POLL_S)
            control.close()
            return _become(fds, *json.loads(request))
        os.waitpid(parent, 0)
        for fd in fds:
            os.close(fd)


def _become(
    fds: Sequence[int],
    argv: list[str],
    environment: dict[str, str],
    numbers: Sequence[int],
    group: int,
) -> list[str]:
    """Take the place of a program that `Popen` would have started."""
    os.setpgid(0, group)
    os.environ.clear()
    os.environ.update(environment)
    above = max((*numbers, *fds)) + 1
    *copies, answer = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
    for fd in fds:
        os.close(fd)
    for number, copy in zip(numbers, copies, strict=True):
        os.dup2(copy, number)
        os.close(copy)
    _show(argv)
    try:
        os.write(answer, str(os.getpid()).encode())
    except OSError:  # the other side does not wait any more
        os._exit(1)
    os.close(answer)
    return argv


def _show(argv: Sequence[str]) -> None:
    """Show this command line for the process, as far as the former one has room for it."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    begin, end = map(int, stat.rpartition(") ")[2].split()[_ARGUMENTS])
    text = b"\0".join(map(os.fsencode, argv))[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
