"""Limits and quotas of one web process: which rules there are, and where they are counted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from accounts.limits.away import GuardedLimiter, StoreState, WhenAway
from accounts.limits.floors import read_bucket_floors, read_floors
from accounts.limits.leases import Denial, Floor, Grant, Lease
from accounts.limits.limiter import RENEW_INTERVAL_S, Limiter, LimitsAway
from accounts.limits.lines import QueueingLimiter
from accounts.limits.memory import MemoryLimiter
from accounts.limits.redis_ import RedisLimiter, connect
from accounts.limits.rulebook import RuleBook, Snapshot
from accounts.limits.rules import Claim, Rule, Spent
from accounts.limits.share import ShareLimiter
from serving.core.errors import Unavailable
from serving.turns import MAX_WAIT_S, Turns

log = logging.getLogger(__name__)

_RESTORE_ALL_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Where limits are counted. Without a Redis each of several web processes has a share."""

    redis_url: str = ""
    when_away: WhenAway = WhenAway.SHARE
    num_processes: int = 1
    queue_s: float = 0.0  # how long a request may wait in its key's line instead of a refusal


@dataclass(frozen=True, slots=True)
class News:
    """What has changed of the limits."""

    snapshot: Snapshot
    new_quotas: Sequence[Rule]
    floors: Sequence[Floor]
    tells_of_buckets: bool


class Limits:
    """Belongs to the event loop."""

    def __init__(self, settings: LimitSettings) -> None:
        self.book = RuleBook()
        self._local = _local(settings.num_processes)
        self._guard = _guard(settings, self._local)
        self._queue: QueueingLimiter | None = None
        self._limiter: Limiter = self._guard or self._local
        if settings.queue_s:
            self._queue = QueueingLimiter(self._limiter, max_wait_s=settings.queue_s)
            self._limiter = self._queue
        self._leases: dict[str, Lease] = {}
        self._settling: dict[asyncio.Task[None], Lease] = {}
        self._turns = Turns()
        self._next_renewal_at = 0.0
        self._restored: set[str] = set()  # quotas, by the keys of their rules
        self._has_lost_buckets = True
        self._next_restore_at = 0.0

    @property
    def state(self) -> StoreState | None:
        """How it stands with the store; None: it is this process."""
        return None if self._guard is None else self._guard.state

    @property
    def limiter(self) -> Limiter:
        """Where all is counted."""
        return self._limiter

    async def reserve(self, claim: Claim) -> Lease | Denial:
        """See `Limiter.acquire`. Raises `Unavailable` while the store is away, and nothing may
        run uncounted."""
        try:
            answer = await self._limiter.acquire(claim)
        except LimitsAway:
            raise Unavailable(
                "The limits of this server cannot be checked just now. Try again."
            ) from None
        if isinstance(answer, Lease):
            self._leases[claim.lease_id] = answer
        return answer

    async def reserve_in_turn(self, claim: Claim) -> Lease | Denial:
        """The same, but for a quota of which others may give back what they have reserved:
        then it waits for that (see `Turns`)."""
        answer = await self.reserve(claim)
        if isinstance(answer, Lease):
            return answer
        until_s = asyncio.get_running_loop().time() + MAX_WAIT_S
        called: Denial | None = None
        try:
            while isinstance(answer, Denial) and await self._turns.wait(
                answer, until_s=until_s, is_first=called is not None
            ):
                called = answer
                answer = await self.reserve(claim)
        finally:
            if called is not None:
                self._turns.pass_on(called)
        return answer

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter.extend`; by the limits as they are now."""
        return await self._limiter.extend(self._as_now(lease), num_output_tokens)

    def settle(self, lease: Lease, spent: Spent) -> None:
        """Replace a reservation by what was used. Returns at once: the store may be far, and
        then a task waits for it."""
        self._leases.pop(lease.id, None)
        lease = self._as_now(lease)
        if self._guard is None and self._queue is None:
            self._local.settle_now(lease, spent)
            self._turns.settled(lease)
            return
        task = asyncio.create_task(self._limiter.settle(lease, spent), name="settle")
        self._settling[task] = lease
        task.add_done_callback(self._settled)

    def read(self) -> News:
        """What the database says, for `follow`. Lets database errors through. For the thread
        of the database.

        Of quotas that are new here it says what was used of them before they bind anybody;
        and of all of them now and then where they are counted in a store, which may have lost
        its memory. Of buckets it says so after a start, and when a store is back that was away.
        """
        now = time.monotonic()
        state = self.state
        is_away = state is not None and state.is_degraded
        if state is not None and (is_away or now >= self._next_restore_at):
            self._next_restore_at = now + _RESTORE_ALL_S
            self._restored = set()
        self._has_lost_buckets = self._has_lost_buckets or is_away
        snapshot = self.book.read()
        known = self._restored
        new = [rule for rule in snapshot.all_rules if rule.is_quota and rule.key not in known]
        floors = read_floors(new, time.time()) if new else []
        tells_of_buckets = self._has_lost_buckets and not is_away
        if tells_of_buckets:
            floors += read_bucket_floors(snapshot.all_rules, time.time())
        return News(snapshot, new, floors, tells_of_buckets)

    async def follow(self, news: News) -> None:
        """From now on these limits hold. What a store that is away cannot be told now it is
        told once it is back."""
        with contextlib.suppress(LimitsAway):
            if news.floors:
                await self._limiter.restore(news.floors)
            self._restored |= {rule.key for rule in news.new_quotas}
            if news.tells_of_buckets:
                self._has_lost_buckets = False
        self.book.follow(news.snapshot)

    async def tick(self) -> None:
        """Renew what is reserved, and see whether the store is there. Call it about once a
        second."""
        now = time.monotonic()
        if self._leases and now >= self._next_renewal_at:
            self._next_renewal_at = now + RENEW_INTERVAL_S
            await self._limiter.renew(list(self._leases.values()))
        if self._guard is not None:
            # Where nobody calls, nobody would notice that the store is away.
            with contextlib.suppress(LimitsAway):
                await self._guard.levels(())

    async def close(self) -> None:
        """Wait for what is being settled."""
        await asyncio.gather(*self._settling, return_exceptions=True)
        for outer in (self._queue, self._guard):
            if outer is not None:
                await outer.close()

    def _as_now(self, lease: Lease) -> Lease:
        rules = self.book.as_now(lease.claim.rules)
        if rules is lease.claim.rules:
            return lease
        return structs.replace(lease, claim=structs.replace(lease.claim, rules=rules))

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._turns.settled(self._settling.pop(task))
        if not task.cancelled() and task.exception() is not None:
            log.error("a reservation was not settled", exc_info=task.exception())


def _local(num_processes: int) -> MemoryLimiter | ShareLimiter:
    memory = MemoryLimiter()
    return memory if num_processes == 1 else ShareLimiter(memory, num_processes)


def _guard(settings: LimitSettings, local: Limiter) -> GuardedLimiter | None:
    if not settings.redis_url:
        return None
    store = RedisLimiter(connect(settings.redis_url))
    return GuardedLimiter(store, local, settings.when_away)
