"""Limits and quotas of one web process: the rules, the limiter, and what a request may use.

A request reserves its prompt and the first tokens of its answers before it runs, asks for
more while it writes, and gives back the rest at its end. Without a limit that binds it,
nothing of this happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from accounts.keytable import Caller
from accounts.limits.away import GuardedLimiter, StoreState, WhenAway
from accounts.limits.floors import read_floors
from accounts.limits.leases import LOST, Denial, Floor, Lease
from accounts.limits.limiter import RENEW_INTERVAL_S, Limiter, LimitsAway
from accounts.limits.lines import QueueingLimiter
from accounts.limits.memory import MemoryLimiter
from accounts.limits.redis_ import RedisLimiter, connect
from accounts.limits.rulebook import RuleBook, Snapshot
from accounts.limits.rules import GRAINS, NOTHING, Claim, Metric, Rule, Spent, Weights
from accounts.limits.share import ShareLimiter
from accounts.limits.wording import headers_of, refusal_of
from accounts.usage.entries import BoundLimit
from serving.core.errors import LimitReached, Unavailable
from serving.flow.allowance import AHEAD_PER_ANSWER
from serving.flow.attempt import Job
from serving.flow.meter import Meter

log = logging.getLogger(__name__)

# So many tokens of each answer are reserved at a time, beside those ahead. More would keep
# tokens from others that may never be used; fewer would ask too often.
_GRANT_PER_ANSWER: Final = 64
_RESTORE_ALL_S: Final = 600.0
_NEVER: Final = 1 << 62
_WEIGHTED: Final = list(Metric).index(Metric.WEIGHTED_TOKENS)


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


class Limits:
    """Belongs to the event loop."""

    def __init__(self, settings: LimitSettings) -> None:
        self.book = RuleBook()
        self._guard = _guard(settings)
        self._queue: QueueingLimiter | None = None
        self._limiter: Limiter = self._guard or _local(settings)
        if settings.queue_s:
            self._queue = QueueingLimiter(self._limiter, max_wait_s=settings.queue_s)
            self._limiter = self._queue
        self._leases: dict[str, Lease] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._next_renewal_at = 0.0
        self._restored: set[str] = set()  # quotas, by the keys of their rules
        self._next_restore_at = 0.0

    @property
    def state(self) -> StoreState | None:
        """How it stands with the store; None: it is this process."""
        return None if self._guard is None else self._guard.state

    @property
    def limiter(self) -> Limiter:
        """Where all is counted."""
        return self._limiter

    def quota(self, caller: Caller, request_id: str) -> Quota:
        """What a request of this caller may use, with nothing reserved."""
        return Quota(self, caller, request_id)

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

    def settle(self, lease: Lease, spent: Spent) -> None:
        """Replace a reservation by what was used. Returns at once: the store may be far."""
        self._leases.pop(lease.id, None)
        task = asyncio.create_task(self._limiter.settle(lease, spent), name="settle")
        self._settling.add(task)
        task.add_done_callback(self._settled)

    def read(self) -> News:
        """What the database says, for `follow`. Lets database errors through. For the thread
        of the database.

        Of quotas that are new here it says what was used of them before they bind anybody;
        and of all of them now and then where they are counted in a store, which may have lost
        its memory.
        """
        now = time.monotonic()
        state = self.state
        if state is not None and (state.is_degraded or now >= self._next_restore_at):
            self._next_restore_at = now + _RESTORE_ALL_S
            self._restored = set()
        snapshot = self.book.read()
        known = self._restored
        new = [rule for rule in snapshot.all_rules if rule.is_quota and rule.key not in known]
        return News(snapshot, new, read_floors(new, time.time()) if new else [])

    async def follow(self, news: News) -> None:
        """From now on these limits hold. What a store that is away cannot be told now it is
        told once it is back."""
        with contextlib.suppress(LimitsAway):
            if news.floors:
                await self._limiter.restore(news.floors)
            self._restored |= {rule.key for rule in news.new_quotas}
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

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._settling.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a reservation was not settled", exc_info=task.exception())


class Quota:
    """Of one request. `serving.flow.allowance.Allowance`, once it is reserved."""

    def __init__(self, limits: Limits, caller: Caller, request_id: str) -> None:
        self._limits = limits
        self._caller = caller
        self._request_id = request_id
        self._lease: Lease | None = None
        self._weights = Weights()
        self._num_wanted = 0  # tokens of all answers at most
        self._num_granted = 0
        self._num_answers = 1
        self._bound: dict[int, BoundLimit] = {}
        self.ask_at = _NEVER
        self.ends_at: int | None = None

    @property
    def is_counted(self) -> bool:
        """Whether a limit binds this request."""
        return self._lease is not None

    @property
    def bound_limits(self) -> tuple[BoundLimit, ...]:
        """The limits that refused it or cut it short, or in shadow would have."""
        return tuple(self._bound.values())

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """How full its limits are."""
        if self._lease is None:
            return []
        told = headers_of(self._lease.reading)
        return [(name.encode(), value.encode()) for name, value in told.items()]

    async def reserve(self, job: Job) -> None:
        """The prompt and the first tokens, of all limits or of none. Raises `LimitReached`,
        or `Unavailable`."""
        model = job.engine.entry.name
        self._weights = self._limits.book.weights_of(model)
        rules = self._limits.book.rules_for(self._caller, model)
        if not rules:
            return
        self._num_answers = max(1, len(job.submits))
        self._num_wanted = _num_wanted(job)
        wanted = self._first_grant(job)
        claim = Claim(
            lease_id=self._request_id,
            rules=rules,
            num_input_tokens=job.meter.num_prompt_tokens,
            num_output_tokens=wanted,
            weights=self._weights,
            owner=str(self._caller.key_id),
        )
        answer = await self._limits.reserve(claim)
        least = min(self._num_answers, self._num_wanted)
        if isinstance(answer, Denial) and not _is_search(job) and claim.num_output_tokens > least:
            # Where few are left, they are for whoever comes.
            claim = replace(claim, num_output_tokens=least)
            answer = await self._limits.reserve(claim)
        if isinstance(answer, Denial):
            self._note([answer])
            refusal = refusal_of(answer, model)
            raise LimitReached(
                refusal.message, type_=refusal.type, code=refusal.code, headers=refusal.headers
            )
        self._lease = answer
        self._note(answer.shadow_denials)
        self._grant(claim.num_output_tokens)
        if claim.num_output_tokens < wanted:
            # Whoever gets all of this is as well off as everybody else.
            await self._extend(wanted - claim.num_output_tokens)

    async def extend(self) -> None:
        """See `Allowance`."""
        left = self._num_wanted - self._num_granted
        await self._extend(min(left, _GRANT_PER_ANSWER * self._num_answers))

    async def _extend(self, num_tokens: int) -> None:
        if self._lease is None or self.ends_at is not None:
            return
        try:
            grant = await self._limits.limiter.extend(self._lease, num_tokens)
        except LimitsAway:
            grant = LOST
        self._note(grant.shadow_denials)
        self._grant(grant.num_output_tokens)
        if grant.num_output_tokens < num_tokens:
            self.ends_at = self._num_granted
        if grant.denial is not None:
            self._note([grant.denial])

    def settle(self, meter: Meter) -> None:
        """Give back what was not used. A request that no engine took counts as none."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        self._limits.settle(lease, _spent(meter) if meter.is_accepted else NOTHING)

    def weighted_tokens(self, meter: Meter) -> float:
        """What budgets are charged."""
        return _spent(meter).costs(self._weights)[_WEIGHTED] / GRAINS

    def _first_grant(self, job: Job) -> int:
        # Nothing is known of a search before its end, so that it cannot be stopped in time.
        if _is_search(job):
            return self._num_wanted
        each = AHEAD_PER_ANSWER + _GRANT_PER_ANSWER
        return min(self._num_wanted, each * self._num_answers)

    def _grant(self, num_tokens: int) -> None:
        self._num_granted += num_tokens
        ahead = AHEAD_PER_ANSWER * self._num_answers
        has_all = self._num_granted >= self._num_wanted
        self.ask_at = _NEVER if has_all else max(0, self._num_granted - ahead)

    def _note(self, denials: Iterable[Denial]) -> None:
        for denial in denials:
            rule = denial.rule
            self._bound[rule.id] = BoundLimit(
                limit_id=rule.id,
                scope=rule.scope,
                metric=rule.metric,
                window=rule.window,
                amount=rule.amount,
                level=denial.level.num_used,
                needed=denial.num_needed,
                wait_s=denial.wait_s,
                is_shadow=rule.is_shadow,
            )


def _local(settings: LimitSettings) -> Limiter:
    memory = MemoryLimiter()
    is_alone = settings.num_processes == 1
    return memory if is_alone else ShareLimiter(memory, settings.num_processes)


def _guard(settings: LimitSettings) -> GuardedLimiter | None:
    if not settings.redis_url:
        return None
    store = RedisLimiter(connect(settings.redis_url))
    return GuardedLimiter(store, _local(settings), settings.when_away)


def _is_search(job: Job) -> bool:
    return any(submit.beams is not None for submit in job.submits)


def _num_wanted(job: Job) -> int:
    """Tokens of all answers, if each takes as long as it may."""
    num_each = job.request.n if _is_search(job) else 1
    return sum(submit.max_new_tokens * num_each for submit in job.submits)


def _spent(meter: Meter) -> Spent:
    num_input_tokens = meter.num_billed_prompt_tokens
    return Spent(
        num_input_tokens=num_input_tokens,
        num_cached_tokens=min(meter.num_cached_tokens, num_input_tokens),
        num_output_tokens=meter.num_output_tokens,
    )
