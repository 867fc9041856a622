"""A wait for what others have reserved of a quota and may give back.

A quota of which all is reserved is not used up yet: most answers end before they have used
what is reserved for them. To tell a client then that its quota is gone, and not to come back,
would be wrong. So requests wait in line, behind those that came before, until somebody has
settled; and are refused once nobody is left who could, or their time is over.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Final

from accounts.limits.leases import Denial, Lease
from accounts.limits.rules import Metric

MAX_WAIT_S: Final = 15.0
_MAX_WAITING: Final = 1000
# Of these more is reserved than may be used. Prompts and requests are known to be.
_GIVEN_BACK: Final = (Metric.TOKENS, Metric.OUTPUT_TOKENS, Metric.WEIGHTED_TOKENS)


class Turns:
    """Of one process. What other processes have reserved nobody waits for."""

    def __init__(self) -> None:
        # By the keys of quotas: how many reservations are open, and who waits.
        self._num_open: Counter[str] = Counter()
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._num_waiting = 0

    def begin(self, lease: Lease) -> None:
        """Something is reserved."""
        self._num_open.update(_quotas(lease))

    def end(self, lease: Lease) -> None:
        """It is settled, and the first in line may try."""
        for key in _quotas(lease):
            self._num_open[key] -= 1
            if not self._num_open[key]:
                del self._num_open[key]
            self._call_next(key)

    async def wait(self, denial: Denial, *, until_s: float, is_first: bool) -> bool:
        """Until it is worth another try, by the loop's clock no longer than `until_s`; False
        when it is not. `is_first`: who was called in vain stays in front.

        Whoever was called must call `pass_on` when it has tried.
        """
        key = denial.rule.key
        may_come_back = denial.is_quota and denial.rule.metric in _GIVEN_BACK
        if not (may_come_back and self._num_open[key]) or self._num_waiting >= _MAX_WAITING:
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


def _quotas(lease: Lease) -> list[str]:
    return [rule.key for rule in lease.claim.rules if rule.is_quota]
