"""Processes as forks of one that has imported what they need.

A fork takes milliseconds where imports take seconds, and shares the memory of its code. The process
that forks has no threads and no event loop. A fork has a session of its own, and the descriptors
and the command line of a program. The nearest ancestor that adopts orphans becomes the parent.
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
from subprocess import Popen
from typing import Any, Final

_VARIABLE: Final = "VINERY_FORKS"
# How long a fork may take on a busy machine. Meanwhile the process that asks does nothing else.
_WITHIN_S: Final = 5.0
_READY: Final = b"ready"
_MAX_BYTES: Final = 1 << 16
_MAX_FDS: Final = 16
_POLL_S: Final = 0.001
# The process that forks has opened no descriptors above.
_HIGH: Final = 255
# Of /proc/PID/stat, after the name: where the words of the command line begin and end.
_ARGUMENTS: Final = slice(45, 47)


class _Fork(Popen[bytes]):
    """A child of this process that another one has forked."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None
        self.stdin = self.stdout = self.stderr = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


class Forks:
    """The side that asks. Only a process that adopts orphans may ask."""

    def __init__(self, variables: dict[str, str]) -> None:
        """Add a variable for the process that forks. Its start has to pass `theirs`."""
        self._control, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_ready = False
        variables[_VARIABLE] = str(self.theirs.fileno())

    @property
    def is_ready(self) -> bool:
        self.theirs.close()
        with suppress(OSError):  # nothing has come
            self._control.setblocking(False)
            self._is_ready |= self._control.recv(len(_READY)) == _READY
        return self._is_ready

    def start(
        self,
        variables: Mapping[str, str],
        argv: Sequence[str],
        *,
        pass_fds: Sequence[int],
        **options: Any,
    ) -> Popen[bytes]:
        """Start a command in a fork, with these variables beside those of the process that forks.
        If that process does not answer, start a program as `Popen` does, and ask no more."""
        try:
            self._control.settimeout(_WITHIN_S)
            request = json.dumps((argv, dict(variables), pass_fds)).encode()
            socket.send_fds(self._control, [request], list(pass_fds))
            return _Fork(int(self._control.recv(_MAX_BYTES)))
        except (OSError, ValueError):
            self.close()
            return Popen(argv, pass_fds=pass_fds, **options)

    def close(self) -> None:
        self._is_ready = False
        self._control.close()


def serve() -> list[str]:
    """Fork for each request until the other side closes the socket. Returns the command in a fork,
    which has to run it, and an empty list at the end."""
    control = socket.socket(fileno=int(os.environ.pop(_VARIABLE)))
    control.send(_READY)
    while True:
        request, fds, _, _ = socket.recv_fds(control, _MAX_BYTES, _MAX_FDS)
        if not request:
            return []
        child = os.fork()
        if child == 0:
            child = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == child:  # signals at the parent's end are for the next parent
                time.sleep(_POLL_S)
            return _become([*fds, control.detach()], *json.loads(request))
        os.waitpid(child, 0)
        for fd in fds:
            os.close(fd)


def _become(
    own: Sequence[int], argv: list[str], variables: Mapping[str, str], numbers: Sequence[int]
) -> list[str]:
    """Take the place of a program. `own` are the descriptors that get these numbers, and the
    socket."""
    os.setsid()
    os.environ.update(variables)
    above = max((*numbers, *own, _HIGH)) + 1
    *copies, control = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in own]
    os.closerange(3, above)
    for number, copy in zip(numbers, copies, strict=True):
        os.dup2(copy, number)
        os.close(copy)
    # Show the command line, as far as the former one has room.
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    begin, end = map(int, stat.rpartition(") ")[2].split()[_ARGUMENTS])
    text = b"\0".join(map(os.fsencode, argv))[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
    try:
        os.write(control, str(os.getpid()).encode())
    except OSError:  # the other side does not wait any more
        os._exit(1)
    os.close(control)
    return argv
