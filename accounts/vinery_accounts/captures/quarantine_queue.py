"""What one web process has put into quarantine, until it is stored, and what is in force.

The event loop calls `put`, which returns at once; a thread calls `sync` then, until it is stored,
and with each refresh of the models. While the database is unavailable a request waits in memory, up
to a number.
"""

import logging
from collections import deque
from collections.abc import Callable

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.captures.quarantine_store import FatalRequest, digests_in_force, store_fatal

logger = logging.getLogger(__name__)


class QuarantineQueue:
    """A bounded queue. One thread may call `put` while another calls `sync`."""

    def __init__(
        self,
        keep_s: int,
        *,
        store: Callable[[FatalRequest, int], None] = store_fatal,
        read: Callable[[], frozenset[str]] = digests_in_force,
        max_waiting: int = 1000,
    ) -> None:
        """`keep_s` is how long a request stays in quarantine; 0: nothing is in quarantine."""
        self._keep_s = keep_s
        self._store = store
        self._read = read
        self._max_waiting = max_waiting
        self._waiting: deque[FatalRequest] = deque()
        # Requests in quarantine when the database was read last.
        self.num_in_force = 0

    @property
    def waiting(self) -> frozenset[str]:
        return frozenset(each.digest for each in self._waiting.copy())

    def put(self, found: FatalRequest) -> None:
        if len(self._waiting) < self._max_waiting:
            self._waiting.append(found)
        else:
            logger.error("quarantine not stored digest=%s: too many wait", found.digest)

    def sync(self) -> frozenset[str]:
        """Store what waits, and return the digests in force.

        Raises `OperationalError` or `InterfaceError` while the database is unavailable; what is
        not stored then waits for the next call. A request with another error is dropped.
        """
        if not self._keep_s:
            return frozenset()
        while self._waiting:
            found = self._waiting[0]
            try:
                self._store(found, self._keep_s)
            except DATABASE_UNAVAILABLE:
                raise
            except Exception:
                logger.exception("quarantine not stored digest=%s", found.digest)
            self._waiting.popleft()
        in_force = self._read()
        self.num_in_force = len(in_force)
        return in_force
