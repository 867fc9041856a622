"""A short wait instead of a refusal: one line for each owner, served in turn.

For limits that pass in a moment, a place or a bucket. Within a line nobody overtakes, and no
newcomer takes what somebody in a line waits for. Lines are bounded in length
and in time; after that the refusal is told as it stands.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from accounts.limits.leases import Denial, Floor, Grant, Lease, Level, behind
from accounts.limits.limiter import Limiter
from accounts.limits.rules import NOTHING, Claim, Kind, Rule, Spent

# Two looks at the limits are at least so far apart.
_MIN_PAUSE_S = 0.001


@dataclass(eq=False, slots=True)
class _Waiter:
    """Somebody in a line, and why."""

    claim: Claim
    denial: Denial
    answer: asyncio.Future[Lease | Denial] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class QueueingLimiter:
    """`Limiter` in front of another one. Belongs to one event loop.

    Requests stand in the line of their claim's `owner`. That a place was freed by another
    process is only found out after the wait that the refusal told.
    """

    def __init__(
        self,
        limiter: Limiter,
        *,
        max_wait_s: float,
        max_waiting: int = 1000,
        max_waiting_per_owner: int = 100,
        as_now: Callable[[Claim], Claim] = lambda claim: claim,
    ) -> None:
        """`as_now` tells a claim by its rules as they are now, for who has waited meanwhile."""
        self._limiter = limiter
        self._max_wait_s = max_wait_s
        self._max_waiting = max_waiting
        self._max_waiting_per_owner = max_waiting_per_owner
        self._as_now = as_now
        self._lines: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._num_waiting = 0
        # How many wait for each rule, by its key.
        self._awaited: Counter[str] = Counter()
        self._may_fit = asyncio.Event()
        self._looks_again_at_s = 0.0  # by the loop's clock
        self._server: asyncio.Task[None] | None = None

    @property
    def num_waiting(self) -> int:
        """Requests in all lines."""
        return self._num_waiting

    async def acquire(self, claim: Claim) -> Lease | Denial:
        """See `Limiter`. Waits up to `max_wait_s` before it is a denial."""
        denial = self._ahead_of(claim)
        if denial is None:
            answer = await self._limiter.acquire(claim)
            if isinstance(answer, Lease) or not self._may_wait_for(answer):
                return answer
            denial = answer
        if not self._has_room(claim.owner):
            return denial
        return await self._wait(_Waiter(claim, denial))

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter`."""
        return await self._limiter.extend(lease, num_output_tokens)

    async def settle(self, lease: Lease, spent: Spent) -> None:
        """See `Limiter`."""
        try:
            await self._limiter.settle(lease, spent)
        finally:
            self._may_fit.set()

    async def renew(self, leases: Sequence[Lease]) -> None:
        """See `Limiter`."""
        await self._limiter.renew(leases)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        """See `Limiter`."""
        return await self._limiter.levels(rules)

    async def restore(self, floors: Sequence[Floor]) -> None:
        """See `Limiter`."""
        await self._limiter.restore(floors)

    async def close(self) -> None:
        """Nobody is served any more: who waits is refused when their time is over."""
        if self._server is not None:
            self._server.cancel()
            await asyncio.gather(self._server, return_exceptions=True)

    # -- In line ------------------------------------------------------------------------------

    def _ahead_of(self, claim: Claim) -> Denial | None:
        """Why somebody waits who must be served before this claim."""
        if not self._num_waiting:
            return None
        keys = {rule.key for rule in claim.rules}
        if not any(self._awaited[key] for key in keys):
            return None
        waiters = (waiter for line in self._lines.values() for waiter in line)
        return behind(next(each.denial for each in waiters if each.denial.rule.key in keys), claim)

    def _may_wait_for(self, denial: Denial) -> bool:
        if denial.is_quota or denial.is_too_large or denial.wait_s is None:
            return False
        return denial.wait_s <= self._max_wait_s or denial.rule.kind is Kind.PLACES

    def _has_room(self, owner: str) -> bool:
        line = self._lines.get(owner, ())
        return self._num_waiting < self._max_waiting and len(line) < self._max_waiting_per_owner

    async def _wait(self, waiter: _Waiter) -> Lease | Denial:
        self._enter(waiter)
        try:
            await asyncio.wait([waiter.answer], timeout=self._max_wait_s)
        except asyncio.CancelledError:
            await self._leave_behind(waiter)
            raise
        if waiter.answer.done():
            return waiter.answer.result()
        waiter.answer.cancel()
        self._leave(waiter)
        return waiter.denial

    async def _leave_behind(self, waiter: _Waiter) -> None:
        """The caller is gone. What it was just given goes back."""
        if not waiter.answer.done():
            waiter.answer.cancel()
            self._leave(waiter)
        elif waiter.answer.exception() is None:
            answer = waiter.answer.result()
            if isinstance(answer, Lease):
                await self.settle(answer, NOTHING)

    def _enter(self, waiter: _Waiter) -> None:
        self._lines.setdefault(waiter.claim.owner, deque()).append(waiter)
        self._num_waiting += 1
        self._awaited[waiter.denial.rule.key] += 1
        if self._loop_s() + (waiter.denial.wait_s or 0.0) < self._looks_again_at_s:
            self._may_fit.set()
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve(), name="limits-lines")

    def _leave(self, waiter: _Waiter) -> None:
        line = self._lines[waiter.claim.owner]
        line.remove(waiter)
        if not line:
            del self._lines[waiter.claim.owner]
        self._num_waiting -= 1
        self._stop_awaiting(waiter)

    def _stop_awaiting(self, waiter: _Waiter) -> None:
        self._awaited[waiter.denial.rule.key] -= 1
        if not self._awaited[waiter.denial.rule.key]:
            del self._awaited[waiter.denial.rule.key]

    # -- Serving --------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Until nobody waits any more."""
        while self._lines:
            self._may_fit.clear()
            while await self._serve_each_line_once():
                pass
            self._looks_again_at_s = self._loop_s() + self._pause_s()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._looks_again_at_s):
                    await self._may_fit.wait()

    async def _serve_each_line_once(self) -> bool:
        """Whether somebody was let in.

        What one waits for, those behind do not get: it may come free between two looks.
        """
        num_served = 0
        awaited: set[str] = set()
        for owner in list(self._lines):
            line = self._lines.get(owner)
            if not line or any(rule.key in awaited for rule in line[0].claim.rules):
                continue
            waiter = line[0]
            if await self._serve_first(waiter):
                num_served += 1
                if owner in self._lines:
                    self._lines.move_to_end(owner)
            elif not waiter.answer.done():
                awaited.add(waiter.denial.rule.key)
        return num_served > 0

    async def _serve_first(self, waiter: _Waiter) -> bool:
        try:
            answer = await self._limiter.acquire(self._as_now(waiter.claim))
        except Exception as error:
            # It is the caller's, wherever it was raised.
            if not waiter.answer.done():
                self._leave(waiter)
                waiter.answer.set_exception(error)
            return False
        if waiter.answer.done():
            # Its time was over meanwhile.
            if isinstance(answer, Lease):
                await self.settle(answer, NOTHING)
            return False
        if isinstance(answer, Lease) or not self._may_wait_for(answer):
            self._leave(waiter)
            waiter.answer.set_result(answer)
            return isinstance(answer, Lease)
        self._stop_awaiting(waiter)
        waiter.denial = answer
        self._awaited[answer.rule.key] += 1
        return False

    def _pause_s(self) -> float:
        waits = [line[0].denial.wait_s or _MIN_PAUSE_S for line in self._lines.values()]
        return max(_MIN_PAUSE_S, min(waits, default=_MIN_PAUSE_S))

    @staticmethod
    def _loop_s() -> float:
        return asyncio.get_running_loop().time()
