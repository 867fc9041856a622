"""Signs of life of a process, in a page of memory shared with the process that watches.

The watched process writes the deadline of its next sign, in seconds of the system's monotonic
clock: one store, without a system call. So an engine can promise more time before a long step. The
same file takes the stacks of the threads, see `allow_stacks`.
"""

import contextlib
import ctypes
import faulthandler
import mmap
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

# Ends the process, if possible with its stacks written. Celery uses the other user signal.
END_SIGNAL: Final = signal.SIGUSR2
# Lets an engine finish its answers, take no new requests, and end.
DRAIN_SIGNAL: Final = signal.SIGUSR1
# Of a process that nothing watches: no sign of life comes too late.
NO_LIMIT_S: Final = 1e9
# The numbers in the page: the deadline, whether the process serves, and of an engine the start of
# its idle time and whether it drains. Stacks follow the page.
_DEADLINE: Final = 0
_SERVING: Final = 1
_IDLE_SINCE: Final = 2  # 0: it is busy, or does not serve yet
_DRAINING: Final = 3
_PAGE_BYTES: Final = mmap.PAGESIZE
_NAME: Final = "heartbeat"
_MAX_STACK_BYTES: Final = 64 << 10
_MAX_FRAMES: Final = 16
_MAX_THREADS: Final = 12
# Linux only, where the main thread has the id of its process.
_tgkill = getattr(ctypes.CDLL(None, use_errno=True), "tgkill", None)
# A thread that waits for work: pools and timers.
_IDLE_FRAMES: Final = frozenset({"_worker", "wait", "get", "accept", "select"})
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def write_stacks_and_end(pid: int) -> None:
    """Send `END_SIGNAL` to the main thread of a process, and let a stopped process continue.
    Another thread could take a signal to the process. Then the main thread would continue for a
    moment, and accept connections that are lost at once. Raises ProcessLookupError."""
    if _tgkill is None or _tgkill(pid, pid, END_SIGNAL):
        os.kill(pid, END_SIGNAL)
    os.kill(pid, signal.SIGCONT)


class Page:
    """The page, for the process that inherits `fd` and for the one that watches. Any thread may
    call the methods."""

    def __init__(self, fd: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.fd = fd
        self._clock = clock
        self._memory = mmap.mmap(fd, _PAGE_BYTES)
        self._numbers = memoryview(self._memory).cast("d")

    @classmethod
    def new(cls, start_limit_s: float, clock: Callable[[], float] = time.monotonic) -> "Page":
        """The page of a process that must beat for the first time within `start_limit_s`."""
        page = cls(_new_file(), clock)
        page.beat(start_limit_s)
        return page

    @classmethod
    def of_running(cls, pid: int) -> "Page | None":
        """The page of a process that another one has started. None: it has none, or is dead."""
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                if str(link.readlink()) == f"/memfd:{_NAME} (deleted)":
                    return cls(os.open(link, os.O_RDWR | os.O_CLOEXEC))
        return None

    def beat(self, limit_s: float) -> None:
        """Promise the next sign within this time."""
        self._numbers[_DEADLINE] = self._clock() + limit_s

    def report_serving(self) -> None:
        self._numbers[_SERVING] = 1.0

    def report_idle(self, since_s: float | None) -> None:
        """`since_s`: the end of the last request, by the monotonic clock; None: one runs."""
        self._numbers[_IDLE_SINCE] = since_s or 0.0

    def report_draining(self) -> None:
        self._numbers[_DRAINING] = 1.0

    def allow_stacks(self) -> None:
        """On `END_SIGNAL` write the stacks of all threads, and end at once. The interpreter's own
        handler writes files, lines and names of functions, no values. The handler needs no lock of
        the interpreter, so it works in an endless loop of a library too."""
        os.set_inheritable(self.fd, False)
        faulthandler.register(END_SIGNAL, file=self.fd, all_threads=True, chain=True)

    @property
    def deadline_s(self) -> float:
        """Until when a sign is promised, in seconds of the monotonic clock."""
        return self._numbers[_DEADLINE]

    @property
    def is_serving(self) -> bool:
        return self._numbers[_SERVING] != 0.0

    @property
    def idle_since_s(self) -> float | None:
        """When the last request of an engine ended, in seconds of the monotonic clock; None: one
        runs, or it does not serve yet."""
        return self._numbers[_IDLE_SINCE] or None

    @property
    def is_draining(self) -> bool:
        return self._numbers[_DRAINING] != 0.0

    def stacks(self) -> str:
        """The text that `allow_stacks` has written, in one line; may be empty."""
        text = os.pread(self.fd, _MAX_STACK_BYTES, _PAGE_BYTES).decode(errors="replace")
        return in_one_line(text)

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()
        os.close(self.fd)


def in_one_line(dump: str) -> str:
    """The stacks of `faulthandler` in one line, the main thread first, without idle threads."""
    found = [_FRAME.findall(thread) for thread in reversed(dump.split("\n\n"))]
    threads = [frames[:_MAX_FRAMES] for frames in found if frames]
    busy = threads[:1] + [each for each in threads[1:] if each[0][2] not in _IDLE_FRAMES]
    return "; ".join(
        " < ".join(
            f"{'/'.join(PurePath(path).parts[-3:])}:{line} {name}" for path, line, name in frames
        )
        for frames in busy[:_MAX_THREADS]
    )


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(_NAME)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _PAGE_BYTES)
    os.lseek(fd, _PAGE_BYTES, os.SEEK_SET)  # where the process writes its stacks
    return fd


# -- When a watched process stands still: stopped, or silent after the promised sign of life.
#
# A busy machine must not cost a process its life. So time counts only while the watching process
# runs as planned, and while no thread of the watched process waits for a processor. A process in an
# endless loop on a busy machine is noticed later, by as much as it waits.

# How often to look at a process. While it is well, every second look is left out.
INTERVAL_S: Final = 0.5
# A look that comes so much later: this process itself, or the whole machine, stood still.
_LATE_S: Final = 0.75
# How long a promise must have been broken, and how long a process must have been stopped.
CONFIRM_S: Final = 1.0
_STOPPED_S: Final = 2.5

_STOPPED: Final = "T"
_TRACED: Final = "t"
_DISK: Final = "D"


@dataclass(frozen=True, slots=True)
class Hang:
    """Why a process is taken to stand still."""

    silent_s: float  # since the broken promise, or the stop
    reason: str


class LinuxProcess:
    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def letter(self) -> str:
        try:
            # The name before it may have any characters, also parentheses.
            return (self._folder / "stat").read_bytes().rpartition(b") ")[2][:1].decode()
        except OSError:
            return ""

    def waited_s(self) -> dict[str, float]:
        waited: dict[str, float] = {}
        try:
            for thread in (self._folder / "task").iterdir():
                _, wait_ns, _ = (thread / "schedstat").read_text().split()
                waited[thread.name] = int(wait_ns) / 1e9
        except (OSError, ValueError):
            return waited
        return waited


class HangWatch:
    """Call `look` every `pause_s`, or more often."""

    def __init__(
        self, page: Page, process: LinuxProcess, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._page = page
        self._process = process
        self._clock = clock
        self._looked_at = clock()
        self.pause_s = INTERVAL_S  # until the next look
        self._deadline_s = 0.0  # at the last look
        self._overdue_s = 0.0  # counted time since the promise was broken
        self._stopped_s = 0.0
        self._waited_s: dict[str, float] = {}

    def look(self) -> Hang | None:
        now = self._clock()
        passed_s, self._looked_at = now - self._looked_at, now
        is_late = passed_s > self.pause_s + _LATE_S
        counted_s = 0.0 if is_late else min(passed_s, INTERVAL_S)
        self.pause_s = INTERVAL_S
        deadline_s = self._page.deadline_s
        if deadline_s != self._deadline_s:  # a sign of life has come since the last look
            self._deadline_s = deadline_s
            self._overdue_s, self._stopped_s, self._waited_s = 0.0, 0.0, {}
            if now <= deadline_s:  # no need to ask the system, which costs more
                self.pause_s = 2 * INTERVAL_S
                return None
        letter = self._process.letter()
        self._stopped_s = self._stopped_s + counted_s if letter == _STOPPED else 0.0
        if now <= deadline_s or letter == _TRACED:
            self._overdue_s, self._waited_s = 0.0, {}
            self.pause_s = INTERVAL_S if self._stopped_s else 2 * INTERVAL_S
        else:
            before, self._waited_s = self._waited_s, self._process.waited_s()
            both = before.keys() & self._waited_s.keys()
            waits = max((self._waited_s[each] - before[each] for each in both), default=0.0)
            if letter != _DISK:
                self._overdue_s += max(counted_s - waits, 0.0)
        if self._stopped_s >= _STOPPED_S:
            return Hang(self._stopped_s, "stopped by a signal")
        if self._overdue_s >= CONFIRM_S:
            return Hang(now - deadline_s, "without a sign of life")
        return None
