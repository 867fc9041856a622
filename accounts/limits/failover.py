"""What happens while the store of the limits does not answer, and how it ends by itself.

A call that is not answered in time makes the store count as away. From then on nobody waits
for it: requests are refused, allowed or counted in this process alone, as the operator has
chosen, and one task keeps asking whether it answers again. Settlements wait meanwhile and are
sent then. A store that answers again may have lost its memory: it counts as away until it was
told what the books say (`restore`, `resume`), or everything would be given out again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar, assert_never

from msgspec import structs

from accounts.limits.leases import LOST, NOT_READ, Denial, Floor, Grant, Lease, Level
from accounts.limits.limiter import STORE_DEADLINE_S, Limiter, LimitsAway
from accounts.limits.rules import NOTHING, Claim, Rule, Spent

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class WhenAway(StrEnum):
    """What to do with requests while the store is away."""

    REFUSE = "refuse"  # nothing runs that is not counted
    ALLOW = "allow"  # everything runs, and is not counted
    SHARE = "share"  # every web process counts its own share; quotas begin with the books


@dataclass(frozen=True, slots=True)
class StoreState:
    """How it stands with the store, for health checks.

    `away_since_s` is Unix time, None while it counts. `num_uncounted` requests ran outside of
    all limits; `num_dropped` settlements found no room to wait, so that what their requests
    had reserved counts as used.
    """

    when_away: WhenAway
    away_since_s: float | None
    num_waiting: int
    num_dropped: int
    num_uncounted: int

    @property
    def is_degraded(self) -> bool:
        """Whether the store is away, or has not been told yet what was used."""
        return self.away_since_s is not None


class GuardedLimiter:
    """`Limiter` on a store that may go away and come back. Belongs to one event loop.

    Only while the store is away, and is to be refused then, do its methods raise `LimitsAway`;
    `levels` and `restore` also do when requests are allowed.
    """

    def __init__(
        self,
        store: Limiter,
        local: Limiter,
        when_away: WhenAway,
        *,
        deadline_s: float = STORE_DEADLINE_S,
        probe_interval_s: float = 0.5,
        max_waiting: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`local` counts in this process, its share only (`share.ShareLimiter`)."""
        self._store = store
        self._local = local
        self._when_away = when_away
        self._deadline_s = deadline_s
        self._probe_interval_s = probe_interval_s
        self._max_waiting = max_waiting
        self._clock = clock
        self._away_since_s: float | None = None
        self._is_answering = True
        self._num_outages = 0
        self._waiting: deque[tuple[Lease, Spent]] = deque()
        self._num_dropped = 0
        self._num_uncounted = 0
        self._caretaker: asyncio.Task[None] | None = None

    @property
    def state(self) -> StoreState:
        """For health checks and a banner."""
        return StoreState(
            self._when_away,
            self._away_since_s,
            len(self._waiting),
            self._num_dropped,
            self._num_uncounted,
        )

    @property
    def num_outages(self) -> int:
        """How often the store went away. What was read of the books before it last did may be
        too little by now."""
        return self._num_outages

    @property
    def is_answering(self) -> bool:
        """Whether the store can be told something, though it may still count as away."""
        return self._is_answering

    async def acquire(self, claim: Claim) -> Lease | Denial:
        """See `Limiter`."""
        if self._away_since_s is None:
            try:
                return await self._ask(self._store.acquire(claim))
            except (LimitsAway, asyncio.CancelledError) as error:
                # It may have been done all the same, and nobody would ever settle it.
                self._settle_later(Lease(claim, NOT_READ), NOTHING)
                if isinstance(error, asyncio.CancelledError):
                    raise
        return await self._acquire_without(claim)

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter`. A store that has lost the lease is as good as away."""
        if self._away_since_s is None and not (lease.is_local or lease.is_uncounted):
            try:
                grant = await self._ask(self._store.extend(lease, num_output_tokens))
            except LimitsAway:
                grant = LOST
            if not grant.is_lost:
                return grant
        return await self._extend_without(lease, num_output_tokens)

    async def settle(self, lease: Lease, spent: Spent) -> None:
        """See `Limiter`. Does not wait for a store that is away."""
        if lease.is_uncounted:
            return
        if lease.is_local:
            await self._local.settle(lease, spent)
        elif self._away_since_s is not None:
            self._settle_later(lease, spent)
        else:
            try:
                await self._ask(self._store.settle(lease, spent))
            except LimitsAway:
                self._settle_later(lease, spent)
            except asyncio.CancelledError:
                self._settle_later(lease, spent)
                raise

    async def renew(self, leases: Sequence[Lease]) -> None:
        """See `Limiter`. Nobody minds a heartbeat that the store has missed."""
        await self._local.renew([lease for lease in leases if lease.is_local])
        if self._away_since_s is None:
            with contextlib.suppress(LimitsAway):
                await self._ask(self._store.renew([one for one in leases if _is_of_store(one)]))

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        """See `Limiter`."""
        if self._away_since_s is None:
            try:
                return await self._ask(self._store.levels(rules))
            except LimitsAway:
                pass
        if self._when_away is WhenAway.SHARE:
            return await self._local.levels(rules)
        raise LimitsAway("the store of the limits does not answer")

    async def restore(self, floors: Sequence[Floor]) -> None:
        """See `Limiter`. Raises `LimitsAway` while the store does not answer.

        Shares hear of it at any time: a quota that was used up in the store must not begin
        anew in every process with the moment that the store goes away.
        """
        if self._when_away is WhenAway.SHARE:
            # Nobody counts there meanwhile.
            anew = [structs.replace(floor, is_again=False) for floor in floors]
            await self._local.restore(anew)
        if not self._is_answering:
            raise LimitsAway("the store of the limits does not answer")
        await self._ask(self._store.restore(floors))

    def resume(self, num_outages: int) -> None:
        """All that the books say was restored, and read when there had been so many outages: the
        store counts again, unless there was another one since."""
        if self._away_since_s is None or not self._is_answering:
            return
        if num_outages == self._num_outages:
            away_s = self._clock() - self._away_since_s
            self._away_since_s = None
            logger.warning("the store of the limits is back after %.1f s", away_s)

    async def close(self) -> None:
        """End the task that looks after the store. What still waits is lost to it: what those
        requests have reserved counts as used."""
        if self._caretaker is not None:
            self._caretaker.cancel()
            await asyncio.gather(self._caretaker, return_exceptions=True)
            self._caretaker = None

    # -- Without the store ------------------------------------------------------------------

    async def _acquire_without(self, claim: Claim) -> Lease | Denial:
        match self._when_away:
            case WhenAway.REFUSE:
                raise LimitsAway("the store of the limits does not answer")
            case WhenAway.ALLOW:
                self._num_uncounted += 1
                return Lease(claim, NOT_READ, is_uncounted=True)
            case WhenAway.SHARE:
                answer = await self._local.acquire(claim)
                if isinstance(answer, Denial):
                    return answer
                return structs.replace(answer, is_local=True)
            case _:
                assert_never(self._when_away)

    async def _extend_without(self, lease: Lease, num_output_tokens: int) -> Grant:
        if lease.is_local:
            return await self._local.extend(lease, num_output_tokens)
        if lease.is_uncounted:
            return Grant(num_output_tokens)
        match self._when_away:
            case WhenAway.REFUSE:
                return LOST
            case WhenAway.ALLOW:
                return Grant(num_output_tokens)
            case WhenAway.SHARE:
                return await self._extend_adopted(lease, num_output_tokens)
            case _:
                assert_never(self._when_away)

    async def _extend_adopted(self, lease: Lease, num_output_tokens: int) -> Grant:
        """Count here what is left of an answer that the store knows the beginning of.

        The store hears of all of it when it is settled. Here it stays until it expires.
        """
        grant = await self._local.extend(lease, num_output_tokens)
        if not grant.is_lost:
            return grant
        costs = lease.claim.costs_per_output_token()
        rules = tuple(rule for rule in lease.claim.rules if costs[rule.column])
        await self._local.acquire(Claim(lease.id, rules, 0, 0, weights=lease.claim.weights))
        return await self._local.extend(lease, num_output_tokens)

    # -- Away and back ------------------------------------------------------------------------

    async def _ask(self, call: Awaitable[AnswerT]) -> AnswerT:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await call
        except (LimitsAway, TimeoutError) as error:
            self._note_away(error)
            raise LimitsAway("the store of the limits does not answer") from error

    def _note_away(self, error: Exception) -> None:
        if self._is_answering:
            self._is_answering = False
            self._num_outages += 1
        if self._away_since_s is None:
            self._away_since_s = self._clock()
            logger.error(
                "the store of the limits is away (%s); until it is back: %s",
                error or "no answer in time",
                self._when_away,
            )
        self._take_care()

    def _settle_later(self, lease: Lease, spent: Spent) -> None:
        if len(self._waiting) < self._max_waiting:
            self._waiting.append((lease, spent))
        else:
            self._num_dropped += 1
        self._take_care()

    def _take_care(self) -> None:
        if self._caretaker is None or self._caretaker.done():
            self._caretaker = asyncio.create_task(self._care(), name="limits-caretaker")

    async def _care(self) -> None:
        """Until the store counts again and has heard everything."""
        while self._away_since_s is not None or self._waiting:
            # First wait: what a lost call has set in motion must be over when it is settled.
            await asyncio.sleep(self._probe_interval_s)
            try:
                await self._ask(self._store.levels(()))
                await self._send_waiting()
                # After what waits: a settlement gives back, and would do so of a restored amount.
                self._is_answering = True
            except LimitsAway:
                continue

    async def _send_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            lease, spent = self._waiting[0]
            await self._ask(self._store.settle(lease, spent))
            self._waiting.popleft()


def _is_of_store(lease: Lease) -> bool:
    return not (lease.is_local or lease.is_uncounted)
