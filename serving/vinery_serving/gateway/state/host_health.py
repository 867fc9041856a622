"""Whether the host can serve: the database and the engines answer, and its disks have free space.

Health checks read the results of database and disks from memory, and never wait for these: a check
that is not back in time is itself a failure.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.messages import EngineStats

# The database is asked for commits once a second. After this long the database is unavailable, and
# not only slow on a busy machine: pages are then refused.
_DATABASE_TIMEOUT_S: Final = 10.0
DISK_INTERVAL_S: Final = 5.0
_DISK_TIMEOUT_S: Final = 3 * DISK_INTERVAL_S
_PING_TIMEOUT_S: Final = 2.0
# An idle engine generates a token every 10 s. Without a token for this long it is not ready.
_READY_TOKEN_AGE_S: Final = 30.0


class DatabaseHealth:
    """Whether the database answers the reads of snapshots. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered_at_s = clock()
        self._has_answered = self._has_failed = False

    def answered(self) -> None:
        self._answered_at_s = self._clock()
        self._has_answered = True
        self._has_failed = False

    def failed(self) -> None:
        self._has_failed = True

    @property
    def silent_s(self) -> float:
        return self._clock() - self._answered_at_s

    @property
    def is_unavailable(self) -> bool:
        return self._has_failed or self.silent_s > _DATABASE_TIMEOUT_S

    @property
    def report(self) -> str:
        if self._has_answered:
            last = f"answered {self.silent_s:.0f} s ago"
        else:
            last = f"has not answered in {self.silent_s:.0f} s"
        return f"unavailable, {last}" if self.is_unavailable else last


class DiskHealth:
    """The free space where data is stored. `folders` maps what is stored to its folder."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        min_free_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders, self._min_free_bytes, self._clock = folders, min_free_bytes, clock
        self._checked_at_s = clock()
        self.free_bytes: dict[str, int] = {}  # by what is stored, for this user
        self._is_checked = self._is_unreadable = False

    def check(self) -> None:
        """Measure the free space. Call it in a thread: a network file system may block."""
        try:
            disks = {name: os.statvfs(folder) for name, folder in self._folders.items()}
            self.free_bytes = {name: each.f_bavail * each.f_frsize for name, each in disks.items()}
            self._is_unreadable = False
        except OSError:
            self._is_unreadable = True
        self._is_checked, self._checked_at_s = True, self._clock()

    @property
    def _low(self) -> list[str]:
        low = {name: num for name, num in self.free_bytes.items() if num < self._min_free_bytes}
        return [f"{num // 2**20} MiB for {name}" for name, num in low.items()]

    @property
    def is_healthy(self) -> bool:
        return not (self._low or self._is_unavailable)

    @property
    def report(self) -> str:
        """The state and its age as a text without paths, because health checks need no key."""
        age = f"{self._clock() - self._checked_at_s:.0f} s"
        if not self._is_checked:
            return f"not measured for {age}"
        if self._is_unreadable:
            return f"cannot be read, seen {age} ago"
        low = ", ".join(self._low)
        return f"{f'low: {low}' if low else 'enough'}, seen {age} ago"

    @property
    def _is_unavailable(self) -> bool:
        return self._is_unreadable or self._clock() - self._checked_at_s > _DISK_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """One engine of a loaded model, for `/readyz` and `/metrics`. `stats` None: no answer."""

    model: str
    stats: EngineStats | None
    pid: int | None = None  # of the process; None: not connected
    is_asleep: bool = False  # the next request wakes the engine
    replica: int = 0  # the number of the engine

    @property
    def is_ready(self) -> bool:
        age_s = None if self.stats is None else self.stats.last_token_age_s
        return age_s is not None and age_s < _READY_TOKEN_AGE_S


async def health_of(engine: Engine, replica: int, client: EngineClient) -> EngineHealth:
    name = engine.entry.name
    try:
        stats = await client.ping(_PING_TIMEOUT_S)
    except (EngineDisconnected, TimeoutError):
        return EngineHealth(name, None, is_asleep=engine.is_asleep, replica=replica)
    pid = None if client.hello is None else client.hello.pid
    return EngineHealth(name, stats, pid=pid, replica=replica)
