"""A wait for what others have reserved of a quota and may give back.

A quota of which all is reserved is not used up yet: most answers end before they have used
what is reserved for them. To tell a client then that its quota is gone, and not to come back,
would be wrong. So requests wait in line, in the order in which they came, until somebody has
settled; and are refused once nobody is left who could, or their time is over.

A line is of one process. Where several share their limits, others settle without a word, and
so the first in line looks again now and then.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Awaitable, Callable
from typing import Final

from accounts.limits.leases import Denial, Lease, behind
from accounts.limits.rules import Claim

MAX_WAIT_S: Final = 15.0
_LOOK_AGAIN_S: Final = 0.2
_MAX_WAITING: Final = 1000


class _Waiter:
    """Somebody who waits, in one line at a time: that of the quota which has refused last."""

    __slots__ = ("claim", "denial", "is_called", "number")

    def __init__(self, number: int, claim: Claim, denial: Denial) -> None:
        self.number = number  # of its arrival
        self.claim = claim
        self.denial = denial
        self.is_called = asyncio.Event()

    @property
    def key(self) -> str:
        """Of the quota that it waits for."""
        return self.denial.rule.key


def _number(waiter: _Waiter) -> int:
    return waiter.number


class Turns:
    """The lines of one process. Belongs to its event loop."""

    def __init__(self, reserve: Callable[[Claim], Awaitable[Lease | Denial]]) -> None:
        """`reserve` is tried by whoever is the first in line."""
        self._reserve = reserve
        self._lines: dict[str, list[_Waiter]] = {}  # by the keys of quotas, in order of arrival
        self._num_waiting = 0
        self._numbers = itertools.count()

    def settled(self, lease: Lease) -> None:
        """It is open no more, and the first in line may try."""
        if self._lines:
            for rule in lease.claim.rules:
                self._call_first(rule.key)

    async def reserve(self, claim: Claim) -> Lease | Denial:
        """See `Limiter.acquire`. Waits up to `MAX_WAIT_S` before it is a denial."""
        number = next(self._numbers)
        denial = self._ahead_of(claim, number) if self._lines else None
        if denial is None:
            answer = await self._reserve(claim)
            if isinstance(answer, Lease) or not _may_come_back(answer):
                return answer
            denial = answer
        if self._num_waiting >= _MAX_WAITING:
            return denial
        self._num_waiting += 1
        waiter = _Waiter(number, claim, denial)
        self._enter(waiter)
        try:
            return await self._wait(waiter)
        finally:
            self._num_waiting -= 1
            self._leave(waiter)

    # -- In line ----------------------------------------------------------------------------------

    async def _wait(self, waiter: _Waiter) -> Lease | Denial:
        until_s = asyncio.get_running_loop().time() + MAX_WAIT_S
        while await self._has_turn(waiter, until_s):
            denial = self._ahead_of(waiter.claim, waiter.number)
            if denial is None:
                answer = await self._reserve(waiter.claim)
                if isinstance(answer, Lease) or not _may_come_back(answer):
                    return answer
                denial = answer
            self._wait_for(waiter, denial)
        return waiter.denial

    async def _has_turn(self, waiter: _Waiter, until_s: float) -> bool:
        """Waits until it is worth a try; False when its time is over."""
        loop = asyncio.get_running_loop()
        while (rest_s := until_s - loop.time()) > 0:
            is_first = self._is_first(waiter)
            look_s = min(rest_s, _LOOK_AGAIN_S) if is_first else rest_s
            try:
                async with asyncio.timeout(look_s):
                    await waiter.is_called.wait()
            except TimeoutError:
                if not is_first:
                    continue
            waiter.is_called.clear()
            return True
        return False

    def _ahead_of(self, claim: Claim, number: int) -> Denial | None:
        """Why somebody waits who came before this one and wants something of the same quota."""
        for rule in claim.rules:
            line = self._lines.get(rule.key)
            if line and line[0].number < number:
                return behind(line[0].denial, claim)
        return None

    def _wait_for(self, waiter: _Waiter, denial: Denial) -> None:
        """Of another quota perhaps than before."""
        if denial.rule.key == waiter.key:
            waiter.denial = denial
            return
        self._leave(waiter)
        waiter.denial = denial
        self._enter(waiter)

    def _enter(self, waiter: _Waiter) -> None:
        bisect.insort(self._lines.setdefault(waiter.key, []), waiter, key=_number)

    def _leave(self, waiter: _Waiter) -> None:
        line = self._lines[waiter.key]
        was_first = line[0] is waiter
        line.remove(waiter)
        if not line:
            del self._lines[waiter.key]
        elif was_first:
            line[0].is_called.set()

    def _is_first(self, waiter: _Waiter) -> bool:
        return self._lines[waiter.key][0] is waiter

    def _call_first(self, key: str) -> None:
        line = self._lines.get(key)
        if line:
            line[0].is_called.set()


def _may_come_back(denial: Denial) -> bool:
    return denial.is_quota and denial.is_enforced
