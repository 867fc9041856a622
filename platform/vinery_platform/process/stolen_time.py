"""Time that a hypervisor takes from the processors of a virtual machine.

A thread seems to compute meanwhile: its CPU time lacks what the hypervisor reports, but not, for
example, the time in which that fetches a page of memory. But the clock of each processor does not
tick meanwhile, and the kernel adds up these ticks in /proc/stat, with the time without work.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
# Columns of a processor: all of its time but the last, which is what the hypervisor reports.
_NUM_COLUMNS: Final = 7
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
# Short work between two ticks is added up as none or as a whole one.
_NOISE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Accounted:
    """The time of each processor that the kernel knows of, in seconds. Empty: unknown."""

    now_s: float
    known_s: tuple[float, ...] = ()


def stolen_s(before: Accounted, after: Accounted) -> float:
    """The most that was taken from one processor. 0 if it is too little to be known."""
    if len(before.known_s) != len(after.known_s):  # one came or left
        return 0.0
    passed_s = after.now_s - before.now_s
    pairs = zip(before.known_s, after.known_s, strict=True)
    most_s = max((passed_s - (late - early) for early, late in pairs), default=0.0)
    return min(most_s, passed_s) if most_s > _NOISE_S else 0.0


class StolenTime:
    """What was taken since the last `mark`. Any thread may call it."""

    def __init__(self, stat: Path = _STAT, clock: Callable[[], float] = time.monotonic) -> None:
        self._stat = stat
        self._clock = clock
        self._marked = Accounted(clock())

    def mark(self) -> None:
        self._marked = self._read()

    def since_mark_s(self) -> float:
        """The most that was taken from one processor, in seconds."""
        return stolen_s(self._marked, self._read())

    def _read(self) -> Accounted:
        now_s = self._clock()
        try:
            known_s = tuple(_known_s(self._stat.read_bytes()))
        except (OSError, ValueError):  # another system
            return Accounted(now_s)
        # A sandbox that imitates Linux may have zeros only.
        return Accounted(now_s, known_s if any(known_s) else ())


def _known_s(stat: bytes) -> Iterator[float]:
    """Of each processor. The first line is their sum."""
    for line in stat.splitlines()[1:]:
        name, *columns = line.split(maxsplit=_NUM_COLUMNS + 1)[: _NUM_COLUMNS + 1]
        if not name.startswith(b"cpu"):
            return
        yield sum(map(int, columns)) * _TICK_S
