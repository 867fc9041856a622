"""A thread that repeats database work, with a growing delay after failures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import close_old_connections, connections

logger = logging.getLogger(__name__)

_MAX_DELAY_S = 30.0


class Writer(threading.Thread):
    """Calls `work` every `interval_s`, and `finish`, which must not raise, at the end.

    The delay doubles after each failure, up to 30 s.
    """

    def __init__(
        self, work: Callable[[], None], finish: Callable[[], None], interval_s: float
    ) -> None:
        super().__init__(name="usage-writer", daemon=True)
        self._work = work
        self._finish = finish
        self._interval_s = interval_s
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Wait for the running work and for `finish`. The thread cannot start again."""
        self._stopping.set()
        self.join()

    def run(self) -> None:
        """The thread."""
        delay_s = self._interval_s
        while not self._stopping.wait(delay_s):
            delay_s = self._next_delay(delay_s)
        # The connection of the last pass may be broken, and `finish` is not repeated.
        connections.close_all()
        self._finish()
        connections.close_all()

    def _next_delay(self, delay_s: float) -> float:
        try:
            self._work()
        except Exception:
            # The thread must go on after any failure: the records are stored by a later pass.
            connections.close_all()
            delay_s = min(delay_s * 2, _MAX_DELAY_S)
            logger.exception("usage is not stored; next attempt in %.1f s", delay_s)
            return delay_s
        close_old_connections()
        return self._interval_s
