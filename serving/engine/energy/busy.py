"""How long each engine of this machine has worked: they share what the hardware counts.

An engine keeps a small file, mapped into memory, with the seconds that it has worked so far and
the moment since when it works now. It holds a lock on it, which ends with the process. Times
are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import Final

_NUMBERS: Final = struct.Struct("dd")
_DONE_S, _SINCE = 0, 1
_LOOK_INTERVAL_S: Final = 1.0


class BusyBoard:
    """The engines that share one source of energy: each has a file in `directory`."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._path = directory / f"{os.getpid()}.busy"
        self._mine = _Times(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        fcntl.flock(self._mine.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._others: dict[Path, _Other] = {}
        self._look_at = 0.0

    @property
    def num_engines(self) -> int:
        """With this one. Known for a second."""
        return 1 + len(self._others)

    def work(self, since: float) -> None:
        """This engine works from now on."""
        self._mine.numbers[_SINCE] = since

    def rest(self, until: float) -> None:
        """It has worked until then. Nothing happens to one that rests."""
        numbers = self._mine.numbers
        if numbers[_SINCE]:
            numbers[_DONE_S] += until - numbers[_SINCE]
            numbers[_SINCE] = 0.0

    def others_s(self, now: float) -> float:
        """Seconds that all others have worked since this was last asked."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_INTERVAL_S
            self._look(now)
        return sum(other.passed_s(now) for other in self._others.values())

    def _look(self, now: float) -> None:
        """Who is there."""
        for path in self._directory.glob("*.busy"):
            if path != self._path and path not in self._others:
                try:
                    self._others[path] = _Other(path, now)
                except (OSError, ValueError):
                    continue  # it has just ended, or has not written yet
        for path in [path for path, other in self._others.items() if other.has_ended()]:
            del self._others[path]
            path.unlink(missing_ok=True)


class _Times:
    def __init__(self, path: Path, flags: int) -> None:
        self.file = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            if flags & os.O_CREAT:
                os.ftruncate(self.file, _NUMBERS.size)
            self.numbers = memoryview(mmap.mmap(self.file, _NUMBERS.size)).cast("d")
        except BaseException:
            os.close(self.file)
            raise


class _Other:
    def __init__(self, path: Path, now: float) -> None:
        self._times = _Times(path, os.O_RDWR)
        self._last_s = self._until(now)

    def passed_s(self, now: float) -> float:
        """Since this was last asked."""
        worked_s = self._until(now)
        passed_s = max(0.0, worked_s - self._last_s)
        self._last_s = max(worked_s, self._last_s)
        return passed_s

    def has_ended(self) -> bool:
        """Whether nobody holds its lock any more."""
        try:
            fcntl.flock(self._times.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._times.numbers.release()
        os.close(self._times.file)
        return True

    def _until(self, now: float) -> float:
        numbers = self._times.numbers
        since = numbers[_SINCE]
        return float(numbers[_DONE_S] + (max(0.0, now - since) if since else 0.0))
