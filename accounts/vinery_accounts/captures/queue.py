"""The captures of one web process that are not stored yet, in a bounded queue in memory.

The event loop calls `put`, which returns at once; a thread calls `store` about once a second.
If the database is unavailable or too slow, captures that do not fit are dropped and counted;
requests never wait. A killed process loses the captures that it has not stored.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.captures.store import CapturedRequest, store_captured

logger = logging.getLogger(__name__)


class CaptureQueue:
    """A bounded queue. One thread may call `put` while another calls `store`."""

    def __init__(
        self,
        *,
        store: Callable[[Sequence[CapturedRequest]], bool] = store_captured,
        max_captures: int = 1000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """`store` returns whether it has stored the batch; if not, it gets the batch again."""
        self._store = store
        self._max_captures = max_captures
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: deque[CapturedRequest] = deque()
        self._num_bytes = 0
        # Captures that did not fit or could not be stored.
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, taken: CapturedRequest) -> None:
        with self._lock:
            num_bytes = self._num_bytes + taken.num_kept_bytes
            if len(self._waiting) >= self._max_captures or num_bytes > self._max_bytes:
                self.num_dropped += 1
                return
            self._waiting.append(taken)
            self._num_bytes = num_bytes

    def store(self) -> None:
        """Store waiting captures. They stay while the database is unavailable; a capture with
        another error is dropped."""
        num_in_batch = 50
        while batch := self._first(num_in_batch):
            try:
                if not self._store(batch):
                    return
            except DATABASE_UNAVAILABLE as error:
                reason = str(error).partition("\n")[0]
                logger.warning("%d captures wait for the database: %s", len(self), reason)
                return
            except Exception as error:
                # One bad capture must not block the others. The error's message may contain its
                # texts and is not logged.
                if len(batch) > 1:
                    num_in_batch = 1
                    continue
                logger.error("a capture is dropped: %s", type(error).__name__)
                self.num_dropped += 1
            self._remove(batch)

    def _first(self, num: int) -> list[CapturedRequest]:
        with self._lock:
            return list(islice(self._waiting, num))

    def _remove(self, batch: Sequence[CapturedRequest]) -> None:
        with self._lock:
            for taken in batch:
                self._waiting.popleft()
                self._num_bytes -= taken.num_kept_bytes
