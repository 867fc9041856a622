"""What a web process stands on: a database that answers, and room on its disks.

Health tells of these and must never wait for them, so both are looked at beside the requests,
and what was found is read from memory. A look that does not come back is an answer, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The snapshots are read every 0.4 s. One that takes so long has met a database that is away, and
# not only a machine that is busy: pages are refused by this.
_DATABASE_PATIENCE_S: Final = 10.0
DISK_INTERVAL_S: Final = 5.0
_DISK_PATIENCE_S: Final = 3 * DISK_INTERVAL_S
_MIB: Final = 1024 * 1024


class DatabaseHealth:
    """Whether the database answers, as whoever reads the snapshots has found: no query of its
    own. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered_at_s = clock()
        self._has_failed = False

    def answered(self) -> None:
        """It has just done what it was asked."""
        self._answered_at_s = self._clock()
        self._has_failed = False

    def failed(self) -> None:
        """It has just refused, or could not be reached."""
        self._has_failed = True

    @property
    def silent_s(self) -> float:
        """Seconds since it last answered."""
        return self._clock() - self._answered_at_s

    @property
    def is_away(self) -> bool:
        """Whether the last look failed, or has not come back in time."""
        return self._has_failed or self.silent_s > _DATABASE_PATIENCE_S


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system. `free_bytes` is what this user may still write."""

    places: tuple[str, ...]
    """What of ours lives there, in words."""
    free_bytes: int


class DiskHealth:
    """How much room is left where data lives. `places` are folders by what they hold."""

    def __init__(
        self,
        places: Mapping[str, Path],
        min_free_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = dict(places)
        self._min_free_bytes = min_free_bytes
        self._clock = clock
        self._looked_at_s = clock()
        self.disks: tuple[Disk, ...] = ()
        self._is_unreadable = False

    def look(self) -> None:
        """Look anew. For a thread: a network's file system may block for ever."""
        try:
            self.disks = _disks(self._places)
            self._is_unreadable = False
        except OSError:
            self._is_unreadable = True
        self._looked_at_s = self._clock()

    @property
    def low(self) -> tuple[Disk, ...]:
        """Those with less room than there should be."""
        return tuple(disk for disk in self.disks if disk.free_bytes < self._min_free_bytes)

    @property
    def is_well(self) -> bool:
        """Whether all were looked at a moment ago, and have room."""
        return not (self.low or self._is_away)

    @property
    def told(self) -> str:
        """In words, without paths: probes come without a key."""
        if self._is_away:
            return "cannot be read"
        short = [f"{disk.free_bytes // _MIB} MiB for {_and(disk.places)}" for disk in self.low]
        return f"low: {', '.join(short)}" if short else "enough"

    @property
    def _is_away(self) -> bool:
        return self._is_unreadable or self._clock() - self._looked_at_s > _DISK_PATIENCE_S


def _disks(places: Mapping[str, Path]) -> tuple[Disk, ...]:
    """Each file system once. Raises OSError."""
    found: dict[int, list[str]] = {}
    free: dict[int, int] = {}
    for name, folder in places.items():
        device = folder.stat().st_dev
        found.setdefault(device, []).append(name)
        there = os.statvfs(folder)
        free[device] = there.f_bavail * there.f_frsize
    return tuple(Disk(tuple(names), free[device]) for device, names in found.items())


def _and(words: tuple[str, ...]) -> str:
    return " and ".join(words)
