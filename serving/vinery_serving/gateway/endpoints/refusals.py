"""Counts by reason the requests and connections that this process refuses unread.

A client can cause any number of refusals, so the log gets a line only now and then: each line has
the numbers since the line before.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

log = logging.getLogger(__name__)

_LOG_INTERVAL_S: Final = 10.0


class Reason(StrEnum):
    """Why a connection or request was refused: the label of the metric."""

    CONNECTIONS = "connections"  # too many in all
    ADDRESS = "address"  # too many of one address
    SILENT = "silent"  # nothing arrived on a new connection in time
    HEADER_TIMEOUT = "header_timeout"
    HEADERS_TOO_LARGE = "headers_too_large"
    PIPELINED = "pipelined"
    MALFORMED = "malformed"
    BODY_UNREAD = "body_unread"  # the client went on sending after the answer
    ANSWER_UNREAD = "answer_unread"  # the client did not read the answer in time
    BODY_TOO_LARGE = "body_too_large"
    BODY_TIMEOUT = "body_timeout"
    BODIES = "bodies"  # too many bytes of bodies in memory
    PAGES = "pages"  # too many requests for pages


class Refusals:
    """Belongs to one thread: there is no lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at_s = -_LOG_INTERVAL_S
        self._unlogged: Counter[str] = Counter()
        self.nums: Counter[str] = Counter(dict.fromkeys(Reason, 0))

    def count(self, reason: Reason) -> None:
        self.nums[reason] += 1
        self._unlogged[reason] += 1
        now_s = self._clock()
        if now_s - self._logged_at_s >= _LOG_INTERVAL_S:
            self._logged_at_s = now_s
            numbers = ", ".join(f"{name} {number}" for name, number in self._unlogged.items())
            log.warning("refused connections or requests by reason: %s", numbers)
            self._unlogged.clear()


REFUSALS: Final = Refusals()  # the refusals of this process
