"""How long each engine of this host has worked. The engines share the host's energy counters.

Each engine has a small file with its busy seconds so far, and the time since when it is busy now.
It holds a lock on the file, which ends with the process. Times are of the monotonic clock, which
all processes of a host share.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

_FORMAT: Final = struct.Struct("dd")
_SCAN_INTERVAL_S: Final = 1.0


class BusyTimes:
    """The busy times of the engines that share a counter; each has a file in `directory`."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._path = directory / f"{os.getpid()}.busy"
        self._own = _BusyFile(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        fcntl.flock(self._own.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._own.write(0.0, 0.0)
        self._others: dict[Path, _BusyFile] = {}
        self._next_scan_at = 0.0

    @property
    def num_engines(self) -> int:
        """The number of engines with this one, as of the last scan (a second ago at most)."""
        return 1 + len(self._others)

    def begin(self, since: float) -> None:
        """Note that this engine is busy since then."""
        self._own.write(self._own.total_s(since), since)

    def end(self, until: float) -> None:
        """Note that this engine was busy until then. Does nothing if it was idle."""
        self._own.write(self._own.total_s(until), 0.0)

    def others_s(self, now: float) -> float:
        """Return the busy seconds of all other engines since the last call."""
        if now >= self._next_scan_at:
            self._next_scan_at = now + _SCAN_INTERVAL_S
            self._scan(now)
        return sum(other.new_s(now) for other in self._others.values())

    def _scan(self, now: float) -> None:
        for path in self._directory.glob("*.busy"):
            if path != self._path and path not in self._others:
                try:
                    other = self._others[path] = _BusyFile(path, os.O_RDWR)
                except OSError:
                    continue  # the engine has just ended
                other.new_s(now)
        for path in [path for path, other in self._others.items() if other.has_ended()]:
            del self._others[path]
            path.unlink(missing_ok=True)


class _BusyFile:
    """The file of one engine: its busy seconds, and the time since when it is busy or 0."""

    def __init__(self, path: Path, flags: int) -> None:
        self.file = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._last_s = 0.0

    def write(self, busy_s: float, since: float) -> None:
        os.pwrite(self.file, _FORMAT.pack(busy_s, since), 0)

    def total_s(self, now: float) -> float:
        """Return the busy seconds since the engine's start."""
        content = os.pread(self.file, _FORMAT.size, 0)
        busy_s, since = _FORMAT.unpack(content) if content else (0.0, 0.0)
        return float(busy_s + (max(0.0, now - since) if since else 0.0))

    def new_s(self, now: float) -> float:
        """Return the busy seconds since the last call."""
        total_s, last_s = self.total_s(now), self._last_s
        self._last_s = max(total_s, last_s)
        return self._last_s - last_s

    def has_ended(self) -> bool:
        """Whether the engine's lock is free. Then its file is closed."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        os.close(self.file)
        return True
