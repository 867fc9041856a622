"""A wait for what others have reserved of a quota and may give back.

A quota of which all is reserved is not used up yet: most answers end before they have used
what is reserved for them. To tell a client then that its quota is gone, and not to come back,
would be wrong. So requests wait in line, behind those that came before, until somebody has
settled; and are refused once nobody is left who could, or their time is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from accounts.limits.leases import Denial, Lease
from accounts.limits.rules import Metric

MAX_WAIT_S: Final = 15.0
_MAX_WAITING: Final = 1000
# Of these more is reserved than may be used. Prompts and requests are known to be.
_GIVEN_BACK: Final = (Metric.TOKENS, Metric.OUTPUT_TOKENS, Metric.WEIGHTED_TOKENS)


class Turns:
    """Of one process. What other processes have reserved nobody waits for."""

    def __init__(self, open_leases: Callable[[], Iterable[Lease]]) -> None:
        """`open_leases` are those that have not been settled. They are asked for when somebody
        would wait, so that all who need not wait pay nothing."""
        self._open_leases = open_leases
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # by the keys of quotas
        self._num_waiting = 0

    def settled(self, lease: Lease) -> None:
        """It is open no more, and the first in line may try."""
        if self._lines:
            for rule in lease.claim.rules:
                self._call_next(rule.key)

    async def wait(self, denial: Denial, *, until_s: float, is_first: bool) -> bool:
        """Until it is worth another try, by the loop's clock no longer than `until_s`; False
        when it is not. `is_first`: who was called in vain stays in front.

        Whoever was called must call `pass_on` when it has tried.
        """
        key = denial.rule.key
        may_come_back = denial.is_quota and denial.rule.metric in _GIVEN_BACK
        if not may_come_back or self._num_waiting >= _MAX_WAITING or not self._is_held(key):
            return False
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(key, deque())
        (line.appendleft if is_first else line.append)(call)
        self._num_waiting += 1
        has_come = False
        try:
            async with asyncio.timeout_at(until_s):
                await call
            has_come = True
            return True
        except TimeoutError:
            return False
        finally:
            self._num_waiting -= 1
            self._leave(key, call)
            if call.done() and not call.cancelled() and not has_come:
                self._call_next(key)

    def pass_on(self, denial: Denial) -> None:
        """Whoever was called has what it wanted, or will not have it: the next may try."""
        self._call_next(denial.rule.key)

    def _is_held(self, key: str) -> bool:
        return any(rule.key == key for lease in self._open_leases() for rule in lease.claim.rules)

    def _call_next(self, key: str) -> None:
        line = self._lines.get(key, ())
        call = next((each for each in line if not each.done()), None)
        if call is not None:
            call.set_result(None)

    def _leave(self, key: str, call: asyncio.Future[None]) -> None:
        line = self._lines[key]
        line.remove(call)
        if not line:
            del self._lines[key]
