"""A wait for what others have reserved of a quota and may give back.

A quota of which all is reserved is not used up yet: most answers end before they have used
what is reserved for them. To tell a client then that its quota is gone, and not to come back,
would be wrong. So requests wait in line, behind those that came before, until somebody has
settled; and are refused once nobody is left who could, or their time is over.

A line is of one process. Where several share their limits, others settle without a word, and
so the first in line looks again now and then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from accounts.limits.leases import Denial, Lease

MAX_WAIT_S: Final = 15.0
_LOOK_AGAIN_S: Final = 0.2
_MAX_WAITING: Final = 1000


class Turns:
    """The lines of one process. Belongs to its event loop."""

    def __init__(self) -> None:
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
        if not (denial.is_quota and denial.is_held) or self._num_waiting >= _MAX_WAITING:
            return False
        key = denial.rule.key
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(key, deque())
        (line.appendleft if is_first else line.append)(call)
        self._num_waiting += 1
        is_worth_it = False
        try:
            is_worth_it = await self._called(call, line, until_s)
            return is_worth_it
        finally:
            self._num_waiting -= 1
            was_its_turn = call.done() or line[0] is call
            self._leave(key, call)
            if was_its_turn and not is_worth_it:
                self._call_next(key)

    def pass_on(self, denial: Denial) -> None:
        """Whoever was called has what it wanted, or will not have it: the next may try."""
        self._call_next(denial.rule.key)

    async def _called(
        self, call: asyncio.Future[None], line: deque[asyncio.Future[None]], until_s: float
    ) -> bool:
        """Whether somebody has settled, or it is the first in line and may look again."""
        loop = asyncio.get_running_loop()
        while not call.done() and loop.time() < until_s:
            is_first = line[0] is call
            rest_s = until_s - loop.time()
            await asyncio.wait([call], timeout=min(rest_s, _LOOK_AGAIN_S) if is_first else rest_s)
            if is_first and line[0] is call and loop.time() < until_s:
                return True
        return call.done()

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
