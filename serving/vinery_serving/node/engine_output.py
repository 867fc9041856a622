"""Repeats what engines write to their logs on the standard output of the node.

An engine itself writes to its file alone, and needs no reader: it outlives its node.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vinery_serving.logs.entries import LogEntry
from vinery_serving.logs.folder import engine_logs
from vinery_serving.logs.reading import LogFollower
from vinery_serving.processes.upkeep import until_next

_INTERVAL_S: Final = 1.0


class EngineOutput:
    """Follows the logs of all engines of this home."""

    def __init__(self, folder: Path, repeat: Callable[[LogEntry], None]) -> None:
        """`repeat` takes each event. What is in the logs already is not repeated."""
        self._folder = folder
        self._repeat = repeat
        self._followers: dict[Path, LogFollower] = {}
        self._find(is_first=True)

    async def follow(self) -> None:
        """Repeat until it is cancelled."""
        while True:
            await asyncio.sleep(until_next(_INTERVAL_S))
            self.read()

    def read(self) -> None:
        """Repeat what has come since."""
        self._find(is_first=False)
        for follower in self._followers.values():
            with contextlib.suppress(OSError):
                for entry in follower.read():
                    self._repeat(entry)

    def _find(self, *, is_first: bool) -> None:
        with contextlib.suppress(OSError):
            paths = engine_logs(self._folder)
            for path in self._followers.keys() - paths:
                self._followers.pop(path).close()
            for path in paths - self._followers.keys():
                self._followers[path] = LogFollower(path, from_start=not is_first)
