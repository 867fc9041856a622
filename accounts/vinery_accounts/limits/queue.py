"""The wait queue: a request waits for a limit instead of being refused.

It waits for a quota of which running requests have reserved some that they may return: most answers
end before they have used their reservation. Requests wait in the order in which they came until a
lease is settled. They are refused when no lease can return anything any more, or when their time is
over.

If an operator switches it on, it also waits for limits that free up in a moment: a slot of
concurrency or a bucket. Then the owners of the requests are served in turn.

No request takes what an earlier one waits for. A queue belongs to one process and its event loop:
where several processes share their limits, the first request of a rule tries again now and then.
"""

import asyncio
import bisect
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from vinery_accounts.limits.reservations import Denial, Lease, ReservationRequest
from vinery_accounts.limits.rules import Kind, Rule

MAX_QUOTA_WAIT_S: Final = 15.0
_RETRY_INTERVAL_S: Final = 0.2
_MIN_PAUSE_S: Final = 0.001  # between two attempts

Answer = Lease | Denial


@dataclass(eq=False, slots=True)
class _Waiter:
    """A request. After a denial it waits for the rule that has refused it."""

    request: ReservationRequest
    waits_for_quotas: bool
    number: int  # the order of arrival
    turn: int = 0  # of its owner; 0 until it waits for a slot or a bucket
    # Only while it waits.
    denial: Denial = field(init=False)
    may_try: asyncio.Event = field(init=False)

    def order(self, rule: Rule) -> tuple[float, int]:
        """Return its order among the requests that wait for this rule."""
        return (0 if rule.is_quota else self.turn or math.inf), self.number


class WaitQueue:
    """The waiting requests of one process."""

    def __init__(
        self,
        attempt: Callable[[ReservationRequest], Awaitable[Answer]],
        *,
        max_wait_s: float,
        max_waiting: int = 1000,
        max_waiting_per_owner: int = 100,
    ) -> None:
        """`attempt` reserves by the rules as they are now, and nothing if it is cancelled.
        `max_wait_s` is the longest wait for a slot or a bucket; 0: no request waits for them.
        `max_waiting` bounds the requests that wait for quotas, and those that do not."""
        self._attempt = attempt
        self._max_wait_s = max_wait_s
        self._max_waiting = max_waiting
        self._max_waiting_per_owner = max_waiting_per_owner
        self._waiters: dict[str, list[_Waiter]] = {}  # by the key of the rule, in their order
        self._num_waiting = Counter[bool]()  # True: for a quota
        self._turns: dict[str, list[int]] = {}  # by owner, of those that wait for no quota
        self._last_turn = 0  # of a request that has received a lease
        self._numbers = itertools.count()

    def note_settled(self, lease: Lease) -> None:
        """Let the first requests that wait for a rule of this lease try again."""
        for rule in lease.request.rules if self._waiters else ():
            if waiters := self._waiters.get(rule.key):
                waiters[0].may_try.set()

    async def reserve(self, request: ReservationRequest, *, waits_for_quotas: bool) -> Answer:
        """See `Limiter.acquire`. Waits up to `MAX_QUOTA_WAIT_S` for a quota and up to `max_wait_s`
        for a slot or a bucket before it returns a denial."""
        waiter = _Waiter(request, waits_for_quotas, next(self._numbers))
        answer = await self._try(waiter)
        if isinstance(answer, Lease) or not self._may_end(waiter, answer):
            return answer
        if not self._has_room(request.owner, answer):
            return answer
        waiter.may_try = asyncio.Event()
        self._enter(waiter, answer)
        try:
            return await self._wait(waiter)
        finally:
            self._leave(waiter)

    async def _wait(self, waiter: _Waiter) -> Answer:
        clock = asyncio.get_running_loop().time
        ends_s: dict[bool, float] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                while True:
                    is_quota = waiter.denial.rule.is_quota
                    max_wait_s = MAX_QUOTA_WAIT_S if is_quota else self._max_wait_s
                    limit.reschedule(ends_s.setdefault(is_quota, clock() + max_wait_s))
                    await self._pause(waiter)
                    answer = await self._try(waiter)
                    if isinstance(answer, Lease):
                        self._last_turn = max(self._last_turn, waiter.turn)
                        return answer
                    if not self._may_end(waiter, answer):
                        return answer
                    self._wait_for(waiter, answer)
        return waiter.denial

    async def _pause(self, waiter: _Waiter) -> None:
        """Wait until another attempt may succeed. The first request of a rule tries now and then:
        another process may have returned something, or the rule may have another amount."""
        denial, pause_s = waiter.denial, None
        if self._waiters[denial.rule.key][0] is waiter:
            pause_s = _RETRY_INTERVAL_S if denial.is_quota else denial.wait_s or _MIN_PAUSE_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await waiter.may_try.wait()
        waiter.may_try.clear()

    async def _try(self, waiter: _Waiter) -> Answer:
        """Make an attempt, unless an earlier request waits for one of the rules."""
        for rule in waiter.request.rules if self._waiters else ():
            if waiter.waits_for_quotas or not rule.is_quota:
                first = self._waiters.get(rule.key, [waiter])[0]
                if first.order(rule) < waiter.order(rule):
                    return first.denial.for_follower(waiter.request)
        return await self._attempt(waiter.request)

    def _may_end(self, waiter: _Waiter, denial: Denial) -> bool:
        """Whether the limit may have room before the wait is over."""
        if denial.is_quota:
            return waiter.waits_for_quotas and denial.is_returnable
        if denial.is_too_large or denial.wait_s is None or not self._max_wait_s:
            return False
        return denial.wait_s <= self._max_wait_s or denial.rule.kind is Kind.CONCURRENCY

    def _has_room(self, owner: str, denial: Denial) -> bool:
        is_quota = denial.rule.is_quota
        is_own_full = len(self._turns.get(owner, ())) >= self._max_waiting_per_owner
        return self._num_waiting[is_quota] < self._max_waiting and (is_quota or not is_own_full)

    def _wait_for(self, waiter: _Waiter, denial: Denial) -> None:
        """Note a new denial, which may be by another rule."""
        if denial.rule.key == waiter.denial.rule.key:
            waiter.denial = denial
        else:
            self._leave(waiter)
            self._enter(waiter, denial)

    def _enter(self, waiter: _Waiter, denial: Denial) -> None:
        rule = denial.rule
        self._num_waiting[rule.is_quota] += 1
        if not rule.is_quota:
            turns = self._turns.setdefault(waiter.request.owner, [])
            # After the last request of this owner, but before the next ones of the others.
            waiter.turn = waiter.turn or max([self._last_turn, *turns]) + 1
            turns.append(waiter.turn)
        waiter.denial = denial
        waiters = self._waiters.setdefault(rule.key, [])
        bisect.insort(waiters, waiter, key=lambda each: each.order(rule))

    def _leave(self, waiter: _Waiter) -> None:
        rule, owner = waiter.denial.rule, waiter.request.owner
        self._num_waiting[rule.is_quota] -= 1
        if not rule.is_quota:
            self._turns[owner].remove(waiter.turn)
            if not self._turns[owner]:
                del self._turns[owner]
        waiters = self._waiters[rule.key]
        was_first = waiters[0] is waiter
        waiters.remove(waiter)
        if not waiters:
            del self._waiters[rule.key]
        elif was_first:
            waiters[0].may_try.set()
