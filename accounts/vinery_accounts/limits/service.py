"""Limits of one web process, for the serving of requests, and what happens while Redis is away.

The service has the rules in force, and the limiter that counts: this process alone, a share of each
limit, or Redis. The service also wires the failover of Redis and the usage baselines together.

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

from asgiref.sync import async_to_sync
from msgspec import structs

from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.recovery import (
    ReconciliationSchedule,
    read_baselines,
    read_bucket_baselines,
)
from vinery_accounts.limits.reservations import (
    LOST,
    NO_USAGE,
    NOT_READ,
    RENEW_INTERVAL_S,
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

# `X as X`: serving imports it from here.
from vinery_accounts.limits.rulebook import RuleBook
from vinery_accounts.limits.rulebook import Snapshot as Snapshot
from vinery_accounts.limits.rulebook import scopes_of as scopes_of
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


# -- The service --------------------------------------------------------------------------------

# A limiter receives them at once, and nothing else happens meanwhile: end users may have many.
_BASELINES_IN_A_CALL: Final = 1000


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

    def __init__(
        self,
        *,
        redis_url: str = "",
        unavailable_policy: UnavailablePolicy = UnavailablePolicy.ALLOW,
        num_processes: int = 1,
    ) -> None:
        """Without Redis each of several web processes has a share of each limit."""
        self.book = RuleBook()
        self._local = MemoryLimiter(num_processes)
        self._failover: FailoverLimiter | None = None
        if redis_url:
            from vinery_accounts.limits.redis import RedisLimiter, connect

            store = RedisLimiter(connect(redis_url))
            self._failover = FailoverLimiter(store, unavailable_policy)
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
