"""What a pull reports while it runs: its stage, and bytes that it has and needs."""

import time
from collections.abc import Callable
from typing import Final

Report = Callable[[str, int, int | None], None]
"""Takes a stage, the bytes that are done, and the bytes in all; None: unknown."""

_INTERVAL_S: Final = 0.5


class Progress:
    """Counts bytes, and reports them twice a second and with each new stage."""

    def __init__(self, report: Report, total_bytes: int, done_bytes: int = 0) -> None:
        self._report, self._stage = report, ""
        self._total, self._done = total_bytes, done_bytes
        self._next_at = 0.0

    def enter(self, stage: str) -> None:
        """Report that a stage has begun."""
        self._stage, self._next_at = stage, 0.0
        self.advance(0)

    def advance(self, num_bytes: int) -> None:
        """Count bytes that came, or with less than 0 some that were dropped."""
        self._done += num_bytes
        now = time.monotonic()
        if now >= self._next_at or self._done >= self._total:
            self._next_at = now + _INTERVAL_S
            self._report(self._stage, self._done, self._total)
