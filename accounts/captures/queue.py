"""What one web process has taken and not stored yet: in memory alone, and never much.

The event loop calls `put`, which returns at once; a thread of its own calls `store` about once a
second. When the database is away, or slower than requests come, what has no room is dropped and
counted: captures are no books, and a request never waits for them. A process that is killed loses
what it has not stored.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from accounts.base.errors import DATABASE_UNAVAILABLE
from accounts.captures.store import CapturedRequest, store_captured

logger = logging.getLogger(__name__)

_BATCH = 50


class CaptureQueue:
    """One thread may `put` while another does `store`."""

    def __init__(
        self,
        *,
        store: Callable[[Sequence[CapturedRequest]], bool] = store_captured,
        max_captures: int = 1000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """`store` says whether it stored the batch; if not, it is given it again later."""
        self._store = store
        self._max_captures = max_captures
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: deque[CapturedRequest] = deque()
        self._num_bytes = 0
        self._num_dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def num_dropped(self) -> int:
        """Captures that were not kept, for want of room or because they cannot be stored."""
        return self._num_dropped

    def put(self, taken: CapturedRequest) -> None:
        """Take one, or drop it when there is no room."""
        with self._lock:
            num_bytes = self._num_bytes + taken.num_kept_bytes
            if len(self._waiting) >= self._max_captures or num_bytes > self._max_bytes:
                self._num_dropped += 1
                return
            self._waiting.append(taken)
            self._num_bytes = num_bytes

    def store(self) -> None:
        """Store what waits. What cannot be stored now stays, what never can be is dropped."""
        num_in_batch = _BATCH
        while batch := self._first(num_in_batch):
            try:
                if not self._store(batch):
                    return
            except DATABASE_UNAVAILABLE as error:
                logger.warning("%d captures wait for the database: %s", len(self), _reason(error))
                return
            except Exception as error:
                # The boundary: one odd capture must not stop the others. Its texts may be in
                # the error's words, so that these are not told.
                if len(batch) > 1:
                    num_in_batch = 1
                    continue
                logger.error("a capture is dropped: %s", type(error).__name__)
                self._num_dropped += 1
            self._remove(batch)

    def _first(self, num: int) -> list[CapturedRequest]:
        with self._lock:
            return [self._waiting[at] for at in range(min(num, len(self._waiting)))]

    def _remove(self, batch: Sequence[CapturedRequest]) -> None:
        with self._lock:
            for taken in batch:
                self._waiting.popleft()
                self._num_bytes -= taken.num_kept_bytes


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0]
