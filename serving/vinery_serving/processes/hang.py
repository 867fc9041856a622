"""When a watched process stands still: stopped, or silent after the promised heartbeat.

A busy machine must not cost a process its life. So time counts only while the watching process
runs as planned, and while no thread of the watched process waits for a processor. A process in an
endless loop on a busy machine is noticed later, by as much as it waits.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vinery_serving.processes.heartbeat import Page

# How often to look at a process.
INTERVAL_S: Final = 0.5
# A look that comes so much later: this process itself, or the whole machine, stood still.
_LATE_S: Final = 0.75
# How long a promise must have been broken, and how long a process must have been stopped.
CONFIRM_S: Final = 1.0
_STOPPED_S: Final = 3.0

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
    """Call `look` every `INTERVAL_S`, or more often."""

    def __init__(
        self, page: Page, process: LinuxProcess, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._page = page
        self._process = process
        self._clock = clock
        self._looked_at = clock()
        self._deadline_s = 0.0  # at the last look
        self._overdue_s = 0.0  # counted time since the promise was broken
        self._stopped_s = 0.0
        self._waited_s: dict[str, float] = {}

    def look(self) -> Hang | None:
        now = self._clock()
        passed_s, self._looked_at = now - self._looked_at, now
        counted_s = 0.0 if passed_s > INTERVAL_S + _LATE_S else passed_s
        deadline_s = self._page.deadline_s
        if deadline_s != self._deadline_s:  # a sign of life has come since the last look
            self._deadline_s = deadline_s
            self._overdue_s, self._stopped_s, self._waited_s = 0.0, 0.0, {}
            if now <= deadline_s:  # no need to ask the system, which costs more
                return None
        letter = self._process.letter()
        self._stopped_s = self._stopped_s + counted_s if letter == _STOPPED else 0.0
        if now <= deadline_s or letter == _TRACED:
            self._overdue_s, self._waited_s = 0.0, {}
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
