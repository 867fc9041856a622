"""Limits of one web process, for the serving of requests.

The service has the rules in force, and the limiter that counts: this process alone, a share of each
limit, or Redis. The service also wires the failover of Redis and the usage baselines together.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asgiref.sync import async_to_sync
from msgspec import structs

from vinery_accounts.limits.failover import FailoverLimiter, StoreState, UnavailablePolicy
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.recovery import (
    ReconciliationSchedule,
    read_baselines,
    read_bucket_baselines,
)
from vinery_accounts.limits.reservations import (
    LOST,
    RENEW_INTERVAL_S,
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

# `X as X`: serving imports it from here.
from vinery_accounts.limits.rulebook import RuleBook
from vinery_accounts.limits.rulebook import Snapshot as Snapshot
from vinery_accounts.limits.rulebook import scopes_of as scopes_of
from vinery_accounts.limits.rules import Rule

logger = logging.getLogger(__name__)

# A limiter receives them at once, and nothing else happens meanwhile: end users may have many.
_BASELINES_IN_A_CALL: Final = 1000


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Where limits are counted. Without Redis each of several web processes has a share."""

    redis_url: str = ""
    unavailable_policy: UnavailablePolicy = UnavailablePolicy.ALLOW
    num_processes: int = 1


@dataclass(frozen=True, slots=True)
class LimitsUpdate:
    """New rules, and baselines for the limiter. The baselines were read of `quotas`, after
    `num_outages` outages of Redis. `is_complete`: of all rules, for a limiter that may have lost
    its memory."""

    snapshot: Snapshot
    quotas: Sequence[Rule]
    baselines: Sequence[UsageBaseline]
    num_outages: int
    is_complete: bool


class LimitService:
    """The limits of one process, for its event loop; only `read_update` runs in another thread."""

    def __init__(self, settings: LimitSettings) -> None:
        self.book = RuleBook()
        self._local = MemoryLimiter(settings.num_processes)
        self._failover: FailoverLimiter | None = None
        if settings.redis_url:
            from vinery_accounts.limits.redis import RedisLimiter, connect

            store = RedisLimiter(connect(settings.redis_url))
            self._failover = FailoverLimiter(store, settings.unavailable_policy)
        self._limiter: Limiter = self._failover or self._local
        self._leases: dict[str, Lease] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._next_renewal_at = 0.0
        self._schedule = ReconciliationSchedule()
        # Leases that were open when Redis received baselines, which do not contain them.
        self._unknown: set[str] = set()
        # The number of outages when the limiter last received all baselines; None: never.
        self._restored_after_outages: int | None = None

    @property
    def state(self) -> StoreState | None:
        """The state of Redis; None: limits are counted in this process."""
        return None if self._failover is None else self._failover.state

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        return await self._limiter.levels(rules)

    async def reserve(self, request: ReservationRequest) -> Lease | Denial:
        """See `Limiter.acquire`. Counts by the rules as they are now. Raises `LimitsUnavailable`
        if Redis does not answer and no request may run uncounted."""
        request = _with_rules(request, self.book.remaining(request.rules))
        answer = await self._limiter.acquire(request)
        if isinstance(answer, Lease):
            self._leases[request.lease_id] = answer
        return answer

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter.extend`. Counts by the rules as they are now. A lease is lost while Redis
        does not answer."""
        try:
            return await self._limiter.extend(self._with_current_rules(lease), num_output_tokens)
        except LimitsUnavailable:
            return LOST

    def settle(self, lease: Lease, usage: ActualUsage) -> None:
        """Replace a reservation by the actual usage. Returns at once: a task waits for Redis."""
        self._leases.pop(lease.id, None)
        lease = self._with_current_rules(lease)
        if self._failover is None:
            self._local.settle_now(lease, usage)
            return
        if lease.id in self._unknown:
            self._unknown.remove(lease.id)
            self._schedule.read_soon()
        task = asyncio.create_task(self._limiter.settle(lease, usage), name="settle")
        self._settling.add(task)
        task.add_done_callback(self._end_settling)

    async def release(self, lease_ids: Sequence[str]) -> None:
        """See `Limiter.release`."""
        if lease_ids:
            await self._limiter.release(lease_ids)

    @property
    def is_update_due(self) -> bool:
        """Whether `read_update` has something to do although no row has changed: after an outage of
        Redis, and when quotas are compared with usage records again. For any thread."""
        num_outages = 0 if self._failover is None else self._failover.num_outages
        if num_outages != self._restored_after_outages or self._schedule.are_buckets_due:
            return True
        return bool(self._schedule.due(rule for rule in self.book.rules if rule.is_quota))

    def read_update(self) -> LimitsUpdate:
        """Return the state of the database, for `follow`. Runs in the thread of the database.
        Raises `django.db.Error`. The update has the baselines of new quotas, so that the limiter
        receives a baseline before the quota binds a request, and of all quotas now and then. After
        a start, and when Redis answers again, the update also has the baselines of buckets, and
        once more a little later."""
        # First: an outage that begins from here on needs another update.
        num_outages, is_answering = 0, True
        if self._failover is not None:
            num_outages = self._failover.num_outages
            is_answering = self._failover.is_answering
        is_lost = num_outages != self._restored_after_outages
        snapshot = self.book.read()
        quotas = [rule for rule in snapshot.all_rules if rule.is_quota]
        self._schedule.keep(() if is_lost else quotas)
        due = self._schedule.due(quotas)
        baselines = [
            structs.replace(baseline, is_update=self._schedule.knows(baseline.rule))
            for baseline in (read_baselines(due, time.time()) if due else ())
        ]
        is_complete = is_lost and is_answering
        if self._schedule.take_buckets() or is_complete:
            # A shadow rule does not count requests above its amount, and usage records do.
            rules = [rule for rule in snapshot.all_rules if is_complete or not rule.is_shadow]
            baselines += read_bucket_baselines(rules, time.time())
        return LimitsUpdate(snapshot, due, baselines, num_outages, is_complete)

    async def follow(self, update: LimitsUpdate) -> None:
        """Put an update in force. A Redis that does not answer receives its baselines later, and
        only then counts again."""
        with contextlib.suppress(LimitsUnavailable):
            for at in range(0, len(update.baselines), _BASELINES_IN_A_CALL):
                await self._limiter.restore(update.baselines[at : at + _BASELINES_IN_A_CALL])
                await asyncio.sleep(0)
            self._schedule.note_restored(update.quotas)
            if update.is_complete:
                self._restored_after_outages = update.num_outages
                self._unknown = set(self._leases)
                # Records of requests that have just ended are on their way.
                self._schedule.read_soon()
        self.book.follow(update.snapshot)
        if self._failover is not None and self._restored_after_outages == update.num_outages:
            self._failover.resume(update.num_outages)

    async def tick(self) -> None:
        """Renew the leases, and check that Redis answers. Call it about once a second."""
        now = time.monotonic()
        if self._leases and now >= self._next_renewal_at:
            self._next_renewal_at = now + RENEW_INTERVAL_S
            await self._limiter.renew(list(self._leases.values()))
        if self._failover is not None:
            # Without requests no other call would notice an outage.
            with contextlib.suppress(LimitsUnavailable):
                await self._failover.levels(())

    async def close(self) -> None:
        await asyncio.gather(*self._settling, return_exceptions=True)
        if self._failover is not None:
            await self._failover.close()

    def _with_current_rules(self, lease: Lease) -> Lease:
        request = _with_rules(lease.request, self.book.current(lease.request.rules))
        return lease if request is lease.request else structs.replace(lease, request=request)

    def _end_settling(self, task: asyncio.Task[None]) -> None:
        self._settling.remove(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a reservation was not settled", exc_info=task.exception())


def _with_rules(request: ReservationRequest, rules: tuple[Rule, ...]) -> ReservationRequest:
    return request if rules == request.rules else structs.replace(request, rules=rules)


# -- Pages --------------------------------------------------------------------------------------


_shown: Final[list[LimitService]] = []


def show_in_pages(limits: LimitService | None) -> None:
    """Let pages, which run in threads beside the event loop, show the levels of these limits."""
    _shown[:] = [] if limits is None else [limits]


def current_state() -> StoreState | None:
    return _shown[0].state if _shown else None


def current_levels(rules: Sequence[Rule]) -> Sequence[Level] | None:
    """Return the levels in the order of the rules; None while they are unknown. For threads that
    Django has started beside the event loop."""
    if not _shown:
        return None
    try:
        return async_to_sync(_shown[0].levels)(rules)
    except LimitsUnavailable:
        return None
