"""Wait queues: a request waits for a limit instead of being refused.

`QueueingLimiter` waits for limits that free up in a moment: a slot of concurrency or a bucket.
It has one queue for each owner, and serves the owners in turn. An operator switches it on.

`QuotaWaitQueue` waits for what running requests have reserved of a quota and may return. A quota of
which all is reserved is not used up: most answers end before they have used their reservation. A
client that then receives "quota exceeded, do not retry" would be misled. So requests wait in the
order in which they came until a lease is settled. They are refused when no lease can return
anything any more, or when their time is over.

In both queues no request takes what an earlier one waits for. Both have limits of length and of
time. A queue belongs to one process and its event loop: where several processes share their limits,
the first request of a queue tries again now and then.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from accounts.limits.reservations import (
    NO_USAGE,
    ActualUsage,
    Denial,
    Grant,
    Lease,
    Level,
    Limiter,
    ReservationRequest,
    UsageBaseline,
)
from accounts.limits.rules import Kind, Rule

MAX_QUOTA_WAIT_S: Final = 15.0
_RETRY_INTERVAL_S: Final = 0.2
_MAX_WAITING: Final = 1000
_MIN_PAUSE_S: Final = 0.001  # between two attempts

Answer = Lease | Denial


# -- Slots and buckets --------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Waiter:
    """A request in its owner's queue, and why it waits."""

    request: ReservationRequest
    denial: Denial
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class QueueingLimiter:
    """`Limiter` in front of another one. A request waits in the queue of its `owner`.

    A slot that another process frees is found after the wait in the denial.
    """

    def __init__(
        self,
        limiter: Limiter,
        *,
        max_wait_s: float,
        max_waiting: int = _MAX_WAITING,
        max_waiting_per_owner: int = 100,
        refresh: Callable[[ReservationRequest], ReservationRequest] = lambda request: request,
    ) -> None:
        """`refresh` returns a request with its rules as they are now, after a wait."""
        self._limiter = limiter
        self._max_wait_s = max_wait_s
        self._max_waiting = max_waiting
        self._max_waiting_per_owner = max_waiting_per_owner
        self._refresh = refresh
        self._queues: OrderedDict[str, deque[_Waiter]] = OrderedDict()  # by owner
        self._num_waiting = 0
        self._num_awaiting: Counter[str] = Counter()  # by the rule's key
        self._may_fit = asyncio.Event()
        self._next_attempt_s = 0.0  # by the loop's clock
        self._server: asyncio.Task[None] | None = None

    @property
    def num_waiting(self) -> int:
        """The number of requests in all queues."""
        return self._num_waiting

    async def acquire(self, request: ReservationRequest) -> Answer:
        """See `Limiter`. Waits up to `max_wait_s` before it returns a denial."""
        denial = self._denial_ahead_of(request)
        if denial is None:
            answer = await self._limiter.acquire(request)
            if isinstance(answer, Lease) or not self._may_wait_for(answer):
                return answer
            denial = answer
        queue = self._queues.get(request.owner, ())
        if self._num_waiting >= self._max_waiting or len(queue) >= self._max_waiting_per_owner:
            return denial
        return await self._wait(_Waiter(request, denial))

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        return await self._limiter.extend(lease, num_output_tokens)

    async def settle(self, lease: Lease, usage: ActualUsage) -> None:
        try:
            await self._limiter.settle(lease, usage)
        finally:
            self._may_fit.set()

    async def renew(self, leases: Sequence[Lease]) -> None:
        await self._limiter.renew(leases)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        return await self._limiter.levels(rules)

    async def restore(self, baselines: Sequence[UsageBaseline]) -> None:
        await self._limiter.restore(baselines)

    async def close(self) -> None:
        """Stop serving: requests that wait are refused when their time is over."""
        if self._server is not None:
            self._server.cancel()
            await asyncio.gather(self._server, return_exceptions=True)

    def _denial_ahead_of(self, request: ReservationRequest) -> Denial | None:
        """Return the denial of a waiting request that must be served before this one."""
        if not self._num_waiting:
            return None
        keys = {rule.key for rule in request.rules}
        if not any(self._num_awaiting[key] for key in keys):
            return None
        denials = (waiter.denial for queue in self._queues.values() for waiter in queue)
        return next(each for each in denials if each.rule.key in keys).for_follower(request)

    def _may_wait_for(self, denial: Denial) -> bool:
        if denial.is_quota or denial.is_too_large or denial.wait_s is None:
            return False
        return denial.wait_s <= self._max_wait_s or denial.rule.kind is Kind.CONCURRENCY

    async def _wait(self, waiter: _Waiter) -> Answer:
        self._enter(waiter)
        try:
            await asyncio.wait([waiter.answer], timeout=self._max_wait_s)
        except asyncio.CancelledError:
            await self._abandon(waiter)
            raise
        if waiter.answer.done():
            return waiter.answer.result()
        waiter.answer.cancel()
        self._leave(waiter)
        return waiter.denial

    async def _abandon(self, waiter: _Waiter) -> None:
        """Return what the request has just received: its caller has gone."""
        if not waiter.answer.done():
            waiter.answer.cancel()
            self._leave(waiter)
        elif waiter.answer.exception() is None:
            answer = waiter.answer.result()
            if isinstance(answer, Lease):
                await self.settle(answer, NO_USAGE)

    def _enter(self, waiter: _Waiter) -> None:
        self._queues.setdefault(waiter.request.owner, deque()).append(waiter)
        self._num_waiting += 1
        self._num_awaiting[waiter.denial.rule.key] += 1
        now_s = asyncio.get_running_loop().time()
        if now_s + (waiter.denial.wait_s or 0.0) < self._next_attempt_s:
            self._may_fit.set()
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve(), name="limits-queue")

    def _leave(self, waiter: _Waiter) -> None:
        queue = self._queues[waiter.request.owner]
        queue.remove(waiter)
        if not queue:
            del self._queues[waiter.request.owner]
        self._num_waiting -= 1
        self._stop_awaiting(waiter)

    def _stop_awaiting(self, waiter: _Waiter) -> None:
        self._num_awaiting[waiter.denial.rule.key] -= 1
        if not self._num_awaiting[waiter.denial.rule.key]:
            del self._num_awaiting[waiter.denial.rule.key]

    async def _serve(self) -> None:
        """Serve until all queues are empty."""
        while self._queues:
            self._may_fit.clear()
            while await self._serve_each_owner_once():
                pass
            waits = [queue[0].denial.wait_s or _MIN_PAUSE_S for queue in self._queues.values()]
            pause_s = max(_MIN_PAUSE_S, min(waits, default=_MIN_PAUSE_S))
            self._next_attempt_s = asyncio.get_running_loop().time() + pause_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_attempt_s):
                    await self._may_fit.wait()

    async def _serve_each_owner_once(self) -> bool:
        """Return whether a request has received a lease.

        A later owner cannot take what an earlier one waits for, although that may become free
        between the two attempts.
        """
        num_served = 0
        awaited: set[str] = set()
        for owner in list(self._queues):
            queue = self._queues.get(owner)
            if not queue or any(rule.key in awaited for rule in queue[0].request.rules):
                continue
            waiter = queue[0]
            if await self._serve_first(waiter):
                num_served += 1
                if owner in self._queues:
                    self._queues.move_to_end(owner)
            elif not waiter.answer.done():
                awaited.add(waiter.denial.rule.key)
        return num_served > 0

    async def _serve_first(self, waiter: _Waiter) -> bool:
        try:
            answer = await self._limiter.acquire(self._refresh(waiter.request))
        except Exception as error:  # the waiting caller handles it
            if not waiter.answer.done():
                self._leave(waiter)
                waiter.answer.set_exception(error)
            return False
        if waiter.answer.done():  # its time was over meanwhile
            if isinstance(answer, Lease):
                await self.settle(answer, NO_USAGE)
            return False
        if isinstance(answer, Lease) or not self._may_wait_for(answer):
            self._leave(waiter)
            waiter.answer.set_result(answer)
            return isinstance(answer, Lease)
        self._stop_awaiting(waiter)
        waiter.denial = answer
        self._num_awaiting[answer.rule.key] += 1
        return False


# -- Quotas -------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _QuotaWaiter:
    """A request in one queue at a time: that of the quota which has refused it last."""

    number: int  # the order of arrival
    request: ReservationRequest
    denial: Denial
    may_try: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> str:
        """The key of the quota."""
        return self.denial.rule.key


class QuotaWaitQueue:
    """The queues of one process, one for each quota."""

    def __init__(self, reserve: Callable[[ReservationRequest], Awaitable[Answer]]) -> None:
        """`reserve` makes an attempt for the first request of a queue."""
        self._reserve = reserve
        self._queues: dict[str, list[_QuotaWaiter]] = {}  # by the quota's key, in order of arrival
        self._num_waiting = 0
        self._numbers = itertools.count()

    def note_settled(self, lease: Lease) -> None:
        """Let the first requests of the lease's quotas try again."""
        if self._queues:
            for rule in lease.request.rules:
                if queue := self._queues.get(rule.key):
                    queue[0].may_try.set()

    async def reserve(self, request: ReservationRequest) -> Answer:
        """See `Limiter.acquire`. Waits up to `MAX_QUOTA_WAIT_S` before it returns a denial."""
        number = next(self._numbers)
        answer, may_wait = await self._try(request, number)
        if isinstance(answer, Lease) or not may_wait or self._num_waiting >= _MAX_WAITING:
            return answer
        self._num_waiting += 1
        waiter = _QuotaWaiter(number, request, answer)
        self._enter(waiter)
        try:
            return await self._wait(waiter)
        finally:
            self._num_waiting -= 1
            self._leave(waiter)

    async def _wait(self, waiter: _QuotaWaiter) -> Answer:
        end_s = asyncio.get_running_loop().time() + MAX_QUOTA_WAIT_S
        while await self._is_worth_a_try(waiter, end_s):
            answer, may_wait = await self._try(waiter.request, waiter.number)
            if isinstance(answer, Lease) or not may_wait:
                return answer
            self._wait_for(waiter, answer)
        return waiter.denial

    async def _try(self, request: ReservationRequest, number: int) -> tuple[Answer, bool]:
        """Return the answer, and whether to wait for another one. An earlier request that waits
        for one of the quotas is a reason to wait, too."""
        for rule in request.rules if self._queues else ():
            queue = self._queues.get(rule.key)
            if queue and queue[0].number < number:
                return queue[0].denial.for_follower(request), True
        answer = await self._reserve(request)
        return answer, isinstance(answer, Denial) and answer.is_quota and answer.is_returnable

    async def _is_worth_a_try(self, waiter: _QuotaWaiter, end_s: float) -> bool:
        """Wait until another attempt may succeed. Return False when the time is over."""
        loop = asyncio.get_running_loop()
        while (rest_s := end_s - loop.time()) > 0:
            is_first = self._queues[waiter.key][0] is waiter
            timeout_s = min(rest_s, _RETRY_INTERVAL_S) if is_first else rest_s
            try:
                async with asyncio.timeout(timeout_s):
                    await waiter.may_try.wait()
            except TimeoutError:
                if not is_first:
                    continue
            waiter.may_try.clear()
            return True
        return False

    def _wait_for(self, waiter: _QuotaWaiter, denial: Denial) -> None:
        """Note a new denial, which may be of another quota."""
        if denial.rule.key == waiter.key:
            waiter.denial = denial
            return
        self._leave(waiter)
        waiter.denial = denial
        self._enter(waiter)

    def _enter(self, waiter: _QuotaWaiter) -> None:
        queue = self._queues.setdefault(waiter.key, [])
        bisect.insort(queue, waiter, key=lambda each: each.number)

    def _leave(self, waiter: _QuotaWaiter) -> None:
        queue = self._queues[waiter.key]
        was_first = queue[0] is waiter
        queue.remove(waiter)
        if not queue:
            del self._queues[waiter.key]
        elif was_first:
            queue[0].may_try.set()
