"""Limits while Redis does not answer, and the return to Redis.

A call without an answer in time marks Redis as unavailable. From then on `UnavailablePolicy`
decides about requests, and none waits for Redis. One task asks Redis again and again until Redis
answers, and then sends the settlements that wait. A Redis that answers again may have lost its
memory, and has not counted the requests meanwhile. So Redis stays marked as unavailable until the
usage baselines have arrived there (`restore`, `resume`).
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from vinery_accounts.limits.reservations import (
    LOST,
    NO_USAGE,
    NOT_READ,
    STORE_DEADLINE_S,
    ActualUsage,
    Denial,
    Grant,
    Lease,
    Level,
    Limiter,
    LimitsUnavailable,
    ReservationRequest,
    UsageBaseline,
)
from vinery_accounts.limits.rules import Rule

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

# Redis is away when so many looks in a row have seen no answer to any call: after 0.5 s.
_NUM_LOOKS: Final = 5
_LOOK_INTERVAL_S: Final = 0.1
_MESSAGE: Final = "Redis does not answer"


class UnavailablePolicy(StrEnum):
    """The treatment of requests while Redis is unavailable: `VINERY_LIMITS_WHEN_AWAY`."""

    # All requests run. Their usage records raise the baselines that Redis receives afterwards.
    ALLOW = "allow"
    REFUSE = "refuse"  # no request runs that is not counted


@dataclass(slots=True)
class StoreState:
    """The state of Redis, for health checks and pages. `unavailable_since_s` is a Unix time, None
    while Redis is available, and `answered_at_s` that of the last answer. `num_dropped` settlements
    were dropped because too many waited: these reservations count as used. `num_uncounted` requests
    ran without limits."""

    policy: UnavailablePolicy
    unavailable_since_s: float | None = None
    answered_at_s: float | None = None
    num_dropped: int = 0
    num_uncounted: int = 0
    waiting: deque[tuple[Lease, ActualUsage]] = field(default_factory=deque)  # settlements

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    @property
    def is_degraded(self) -> bool:
        """Whether Redis is unavailable, or has not received the usage baselines yet."""
        return self.unavailable_since_s is not None


class FailoverLimiter:
    """`Limiter` on a Redis that may become unavailable. It belongs to one event loop. While Redis
    is unavailable, `levels` and `restore` raise `LimitsUnavailable`, and so does `acquire` if the
    policy refuses requests."""

    def __init__(
        self,
        store: Limiter,
        policy: UnavailablePolicy,
        *,
        deadline_s: float = STORE_DEADLINE_S,
        probe_interval_s: float = 0.5,
        max_waiting: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self.state = StoreState(policy)
        self._deadline_s = deadline_s
        self._probe_interval_s = probe_interval_s
        self._max_waiting = max_waiting
        self._clock = clock
        self._num_answers = 0
        # Whether Redis answers, though it may still be marked as unavailable.
        self.is_answering = True
        # Baselines that were read before the last outage may be too low now.
        self.num_outages = 0
        self._recovery: asyncio.Task[None] | None = None

    async def acquire(self, request: ReservationRequest) -> Lease | Denial:
        if not self.state.is_degraded:
            # Redis may have made the reservation, and no other call would settle it.
            unanswered = Lease(request, NOT_READ), NO_USAGE
            with contextlib.suppress(LimitsUnavailable):
                return await self._ask(self._store.acquire(request), unanswered)
        if self.state.policy is UnavailablePolicy.REFUSE:
            raise LimitsUnavailable(_MESSAGE)
        self.state.num_uncounted += 1
        return Lease(request, NOT_READ, is_uncounted=True)

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter`. A Redis that has lost the lease is treated as unavailable."""
        if lease.is_uncounted:
            return Grant(num_output_tokens)
        grant = LOST
        if not self.state.is_degraded:
            with contextlib.suppress(LimitsUnavailable):
                grant = await self._ask(self._store.extend(lease, num_output_tokens))
        if grant.is_lost and self.state.policy is UnavailablePolicy.ALLOW:
            return Grant(num_output_tokens)
        return grant

    async def settle(self, lease: Lease, usage: ActualUsage) -> None:
        if lease.is_uncounted:
            return
        if self.state.is_degraded:
            self._settle_later(lease, usage)
            return
        with contextlib.suppress(LimitsUnavailable):
            await self._ask(self._store.settle(lease, usage), (lease, usage))

    async def renew(self, leases: Sequence[Lease]) -> None:
        if not self.state.is_degraded:
            with contextlib.suppress(LimitsUnavailable):
                await self._ask(self._store.renew([one for one in leases if not one.is_uncounted]))

    async def release(self, lease_ids: Sequence[str]) -> None:
        if not self.state.is_degraded:
            with contextlib.suppress(LimitsUnavailable):
                await self._ask(self._store.release(lease_ids))

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        if self.state.is_degraded:
            raise LimitsUnavailable(_MESSAGE)
        return await self._ask(self._store.levels(rules))

    async def restore(self, baselines: Sequence[UsageBaseline]) -> None:
        if not self.is_answering:
            raise LimitsUnavailable(_MESSAGE)
        await self._ask(self._store.restore(baselines))

    def resume(self, num_outages: int) -> None:
        """Mark Redis as available: it has all baselines, which were read after so many outages.
        After another outage since then, Redis stays unavailable."""
        if self.state.unavailable_since_s is None or not self.is_answering:
            return
        if num_outages == self.num_outages:
            duration_s = self._clock() - self.state.unavailable_since_s
            self.state.unavailable_since_s = None
            logger.warning("Redis keeps the limits again after %.1f s", duration_s)

    async def close(self) -> None:
        """End the recovery task. Waiting settlements are lost: the reservations of these requests
        count as used."""
        recovery, self._recovery = self._recovery, None
        while recovery is not None and not recovery.done():
            # Again and again: a store may lose a cancellation.
            recovery.cancel()
            await asyncio.wait([recovery], timeout=self._probe_interval_s)

    # -- Outages and recovery ---------------------------------------------------------------

    async def _ask(
        self, call: Awaitable[AnswerT], unanswered: tuple[Lease, ActualUsage] | None = None
    ) -> AnswerT:
        """Return the answer. Without one, also if the caller leaves, `unanswered` is settled
        later."""
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._unless_silent(call)
        except (LimitsUnavailable, TimeoutError, asyncio.CancelledError) as error:
            if unanswered is not None:
                self._settle_later(*unanswered)
            if isinstance(error, asyncio.CancelledError):
                raise
            self._note_outage(error)
            raise LimitsUnavailable(_MESSAGE) from error
        self.state.answered_at_s = self._clock()
        self._num_answers += 1
        return answer

    async def _unless_silent(self, call: Awaitable[AnswerT]) -> AnswerT:
        """Raises TimeoutError if Redis answers no call. One answer may be late because hundreds of
        requests arrive at once, or because the event loop stood still."""
        task = asyncio.ensure_future(call)
        num_looks, num_answers = 0, self._num_answers
        try:
            while num_looks < _NUM_LOOKS:
                await asyncio.wait([task], timeout=_LOOK_INTERVAL_S)
                if task.done():
                    return task.result()
                num_looks = 0 if self._num_answers != num_answers else num_looks + 1
                num_answers = self._num_answers
            raise TimeoutError
        finally:
            task.cancel()

    def _note_outage(self, error: Exception) -> None:
        if self.is_answering:
            self.is_answering = False
            self.num_outages += 1
        if not self.state.is_degraded:
            self.state.unavailable_since_s = self._clock()
            logger.error(
                "Redis does not keep the limits (%s); until it does: %s",
                error or "no answer in time",
                self.state.policy,
            )
        self._begin_recovery()

    def _settle_later(self, lease: Lease, usage: ActualUsage) -> None:
        if len(self.state.waiting) < self._max_waiting:
            self.state.waiting.append((lease, usage))
        else:
            self.state.num_dropped += 1
        self._begin_recovery()

    def _begin_recovery(self) -> None:
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._recover(), name="limits-recovery")

    async def _recover(self) -> None:
        while self.state.is_degraded or self.state.waiting:
            # Wait first: a lost call must be over before its settlement.
            await asyncio.sleep(self._probe_interval_s)
            try:
                await self._ask(self._store.levels(()))
                for _ in range(len(self.state.waiting)):
                    await self._ask(self._store.settle(*self.state.waiting[0]))
                    self.state.waiting.popleft()
                # After the settlements, which would return some of a restored amount.
                self.is_answering = True
            except LimitsUnavailable:
                continue
