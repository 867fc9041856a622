"""Refuses a request at its arrival that would wait longer than it may: the option `max_queue_s`.

A refused client gets the time at which there is room for it, each of a lane a later one. Then it is
admitted, also if others have come before it. A request is recognised by its lane and its prompt,
which clients repeat; nothing but a hash is kept.
"""

import math
from collections import deque
from collections.abc import Hashable
from typing import Any, Final

from vinery_serving.engine.fair_queue import Lane
from vinery_serving.transport.messages import Submit

_MAX_EXPECTED: Final = 4096  # beyond them the oldest are forgotten
_MAX_EQUAL: Final = 16  # clients of a lane with the same prompt


class QueueLimit:
    """The times at which refused requests come back."""

    def __init__(self) -> None:
        self._due_at: dict[Hashable, deque[float]] = {}
        self._last_due_at: dict[Lane, float] = {}

    def check(self, submit: Submit, wait_s: float, service_s: float, now: float) -> int | None:
        """Return after how many seconds a request must come back; None: it may wait.

        It would wait for `wait_s`, and its lane is served one request in `service_s`.
        """
        name = submit.lane, hash(submit.prompt_ids)
        if self._comes_back(name, now) or not 0 < submit.max_queue_s < wait_s:
            return None
        last_due_at = self._last_due_at.pop(submit.lane, 0.0)
        due_at = max(now + wait_s - submit.max_queue_s, last_due_at + service_s)
        self._last_due_at[submit.lane] = due_at
        self._due_at.setdefault(name, deque(maxlen=_MAX_EQUAL)).append(due_at)
        _bound(self._due_at)
        _bound(self._last_due_at)
        return max(1, math.ceil(due_at - now))

    def _comes_back(self, name: Hashable, now: float) -> bool:
        """Whether a request comes back at its time. It does so once."""
        times = self._due_at.get(name)
        if times is None or times[0] > now:
            return False
        times.popleft()
        if not times:
            del self._due_at[name]
        return True


def _bound(table: dict[Any, Any]) -> None:
    if len(table) > _MAX_EXPECTED:
        del table[next(iter(table))]
