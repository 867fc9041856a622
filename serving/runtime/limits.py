"""Limits and quotas of one web process: which rules there are, and where they are counted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from accounts.limits.baselines import read_bucket_floors, read_floors
from accounts.limits.failover import GuardedLimiter, StoreState, WhenAway
from accounts.limits.leases import Denial, Floor, Grant, Lease
from accounts.limits.limiter import RENEW_INTERVAL_S, Limiter, LimitsAway
from accounts.limits.memory import MemoryLimiter
from accounts.limits.quota_queue import Turns
from accounts.limits.reconciliation import Looks
from accounts.limits.redis_ import RedisLimiter, connect
from accounts.limits.rulebook import RuleBook, Snapshot
from accounts.limits.rules import Claim, Rule, Spent
from accounts.limits.share import ShareLimiter
from accounts.limits.wait_queue import QueueingLimiter
from serving.core.errors import Unavailable

log = logging.getLogger(__name__)


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
    looked_at: Sequence[Rule]  # quotas
    floors: Sequence[Floor]
    num_outages: int  # of the store, before this was read
    tells_all: bool  # of buckets, too


class Limits:
    """Belongs to the event loop."""

    def __init__(self, settings: LimitSettings) -> None:
        self.book = RuleBook()
        self._local = _local(settings.num_processes)
        self._guard = _guard(settings, self._local)
        self._queue: QueueingLimiter | None = None
        self._limiter: Limiter = self._guard or self._local
        if settings.queue_s:
            self._queue = QueueingLimiter(
                self._limiter, max_wait_s=settings.queue_s, as_now=self._still_asked
            )
            self._limiter = self._queue
        self._leases: dict[str, Lease] = {}
        self._settling: dict[asyncio.Task[None], Lease] = {}
        self._turns = Turns(self.reserve)
        self._next_renewal_at = 0.0
        self._looks = Looks()
        # Which were open when the store was told: it does not know what they use.
        self._unknown: set[str] = set()
        # When all that the books say was told, the store had been away so often; None: never.
        self._told_after_outages: int | None = None

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
            # A limit may have changed, or be gone, while it waited.
            answer = await self._limiter.acquire(self._still_asked(claim))
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
        return await self._turns.reserve(claim)

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
        if lease.id in self._unknown:
            self._unknown.remove(lease.id)
            self._looks.hurry(lease.claim.rules)
        task = asyncio.create_task(self._limiter.settle(lease, spent), name="settle")
        self._settling[task] = lease
        task.add_done_callback(self._settled)

    def read(self) -> News:
        """What the database says, for `follow`. Lets database errors through. For the thread
        of the database.

        Of quotas that are new here it says what was used of them before they bind anybody;
        and of all of them now and then, for what has ended since (see `Looks`). After a start,
        and when a store is back that was away, it says so of buckets, too.
        """
        # First: a store that goes away from here on has to be told again.
        num_outages, is_answering = self._outages()
        is_lost = num_outages != self._told_after_outages
        if is_lost:
            self._looks.forget()
        snapshot = self.book.read()
        quotas = [rule for rule in snapshot.all_rules if rule.is_quota]
        self._looks.keep(quotas)
        due = self._looks.due(quotas)
        floors = [
            structs.replace(floor, is_again=self._looks.knows(floor.rule))
            for floor in (read_floors(due, time.time()) if due else ())
        ]
        tells_all = is_lost and is_answering
        if tells_all:
            floors += read_bucket_floors(snapshot.all_rules, time.time())
        return News(snapshot, due, floors, num_outages, tells_all)

    async def follow(self, news: News) -> None:
        """From now on these limits hold. What a store that is away cannot be told now it is
        told once it answers, and only then does it count again."""
        with contextlib.suppress(LimitsAway):
            if news.floors:
                await self._limiter.restore(news.floors)
            self._looks.told(news.looked_at)
            if news.tells_all:
                self._told_after_outages = news.num_outages
                self._unknown = set(self._leases)
        self.book.follow(news.snapshot)
        if self._guard is not None and self._told_after_outages == news.num_outages:
            self._guard.resume(news.num_outages)

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

    def _outages(self) -> tuple[int, bool]:
        """How many there were, and whether the store answers."""
        if self._guard is None:
            return 0, True
        return self._guard.num_outages, self._guard.is_answering

    def _as_now(self, lease: Lease) -> Lease:
        claim = _with_rules(lease.claim, self.book.as_now(lease.claim.rules))
        return lease if claim is lease.claim else structs.replace(lease, claim=claim)

    def _still_asked(self, claim: Claim) -> Claim:
        return _with_rules(claim, self.book.left_of(claim.rules))

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._turns.settled(self._settling.pop(task))
        if not task.cancelled() and task.exception() is not None:
            log.error("a reservation was not settled", exc_info=task.exception())


def _with_rules(claim: Claim, rules: tuple[Rule, ...]) -> Claim:
    return claim if rules is claim.rules else structs.replace(claim, rules=rules)


def _local(num_processes: int) -> MemoryLimiter | ShareLimiter:
    memory = MemoryLimiter()
    return memory if num_processes == 1 else ShareLimiter(memory, num_processes)


def _guard(settings: LimitSettings, local: Limiter) -> GuardedLimiter | None:
    if not settings.redis_url:
        return None
    store = RedisLimiter(connect(settings.redis_url))
    return GuardedLimiter(store, local, settings.when_away)
