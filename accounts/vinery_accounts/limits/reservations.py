"""The interface of a limiter, with its requests and results: reserve, extend, settle.

A request reserves of all its rules at once and receives a lease, or a denial without any change.
Meanwhile the process extends the lease a few tokens ahead of need and renews it with a heartbeat.
At the end, the process settles the lease with the actual usage. In any order of calls, reservations
and use of a rule together never exceed its amount.

Two implementations behave alike: `memory.MemoryLimiter` and `redis.RedisLimiter`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import structs

from vinery_accounts.base.errors import AccountsError
from vinery_accounts.limits import windows
from vinery_accounts.limits.rules import SCALE, Kind, Rule
from vinery_accounts.usage.entries import EQUAL_WEIGHTS, TokenCounts, Weights

# A lease that was not renewed for so long belongs to a dead process. Its slots of concurrency
# become free. The rest counts as used until the process settles the lease after all, or until
# `recovery.settle_dead_leases` does.
LEASE_TTL_S: Final = 35.0
# Two heartbeats may be lost, also when each is a second late.
RENEW_INTERVAL_S: Final = 10.0
# Redis answers in a millisecond, but a process that hundreds of requests reach at once may see the
# answer after more than a second. A Redis that has died is noticed at once, by its connections.
STORE_DEADLINE_S: Final = 5.0

# A slot becomes free, and tokens of a quota return, when another answer ends. The limiter cannot
# know when.
ANSWER_WAIT_S: Final = 1.0
_MILLI: Final = SCALE // 1000

# Fixed-point units by `Rule.column`.
Costs = tuple[int, int, int, int, int, int, int]
NO_COSTS: Final[Costs] = (0, 0, 0, 0, 0, 0, 0)


class LeaseExists(ValueError):
    """A lease with this id is open: ids must be unique."""


class LimitsUnavailable(AccountsError):
    """Redis does not answer, and without it requests are refused."""


class ReservationRequest(TokenCounts, frozen=True, kw_only=True):
    """The needs of a request before it runs: the prompt, and the first tokens of the answer.

    `lease_id` is the request's id, unique for ever. `rules` has each rule once. Cached and image
    tokens are part of the prompt, and no token is both. Count only certainly cached tokens as
    cached: actual usage above the reservation is charged all the same. Raises ValueError for counts
    that cannot be.
    """

    lease_id: str
    rules: tuple[Rule, ...]
    weights: Weights = EQUAL_WEIGHTS
    num_answers: int = 1  # generated at the same time: each holds a slot of concurrency

    def __post_init__(self) -> None:
        _check_counts(self)
        if self.num_answers < 1:
            raise ValueError("a request has at least one answer")

    def costs(self) -> Costs:
        return _costs(self, self.weights, 1, self.num_answers * SCALE)

    def costs_per_output_token(self) -> Costs:
        weighted = self.weights.output_milli * _MILLI
        cost = self.weights.output_milli if self.weights.is_price else 0
        return (0, SCALE, 0, SCALE, 0, weighted, cost)


class ActualUsage(TokenCounts, frozen=True, kw_only=True):
    """The use of a request. `num_requests` is 0 for a request that no engine has run. Raises
    ValueError for counts that cannot be."""

    num_requests: int = 1

    def __post_init__(self) -> None:
        _check_counts(self)

    def costs(self, weights: Weights) -> Costs:
        return _costs(self, weights, self.num_requests, 0)

    def costs_charged(self, weighted: int, cost: int) -> Costs:
        """Return the same with known weighted tokens and cost, in fixed-point units."""
        return (*self.costs(EQUAL_WEIGHTS)[:5], weighted, cost)

    def weighted_tokens(self, weights: Weights) -> float:
        return weights.weigh_milli(self) / 1000

    def cost(self, weights: Weights) -> float:
        return weights.cost_milli(self) / 1000


def _costs(counts: TokenCounts, weights: Weights, num_requests: int, concurrency: int) -> Costs:
    return (
        num_requests * SCALE,
        counts.num_tokens * SCALE,
        counts.num_prompt_tokens * SCALE,
        counts.num_output_tokens * SCALE,
        concurrency,
        weights.weigh_milli(counts) * _MILLI,
        weights.cost_milli(counts),  # as `COST_SCALE`
    )


def _check_counts(counts: TokenCounts) -> None:
    num_cached, num_image = counts.num_cached_tokens, counts.num_image_tokens
    if num_cached < 0 or num_image < 0 or counts.num_output_tokens < 0:
        raise ValueError("a number of tokens cannot be negative")
    if num_cached + num_image > counts.num_prompt_tokens:
        raise ValueError("cached and image tokens are part of the prompt")


# The usage of a request that did not run.
NO_USAGE: Final = ActualUsage(num_requests=0)


# -- Answers ------------------------------------------------------------------------------------


class Level(msgspec.Struct, frozen=True):
    """The use of a rule. `reset_s`: the seconds until nothing is used; None when time alone does
    not reset the rule."""

    rule: Rule
    num_used: int
    reset_s: float | None

    @property
    def num_remaining(self) -> int:
        """The rest of the amount. Negative when requests have used more than reserved."""
        return self.rule.amount - self.num_used


class Reading(msgspec.Struct, frozen=True):
    """The use of the rules of a request at one moment, in fixed-point units."""

    rules: tuple[Rule, ...]
    used: Sequence[int]
    now_ms: int

    @property
    def levels(self) -> tuple[Level, ...]:
        pairs = zip(self.rules, self.used, strict=True)
        return tuple(level_of(rule, used, self.now_ms) for rule, used in pairs)


NOT_READ: Final = Reading((), (), 0)


class Denial(msgspec.Struct, frozen=True):
    """A refusal, by the rule that would refuse longest. `num_needed`: the request's need of that
    rule. `wait_s` None: waiting does not help. `is_returnable`: running requests have reserved some
    of this quota, and may return it. Most answers end before the reservation is used."""

    rule: Rule
    level: Level
    num_needed: int
    wait_s: float | None
    reading: Reading = NOT_READ
    is_returnable: bool = False

    @property
    def is_too_large(self) -> bool:
        """Whether the request would not fit even without any use, but a shorter request, or fewer
        answers, would."""
        rule = self.rule
        can_be_smaller = rule.metric.is_of_tokens or rule.kind is Kind.CONCURRENCY
        return can_be_smaller and self.num_needed > rule.amount > 0

    @property
    def is_quota(self) -> bool:
        """Whether the client should not retry soon, because a quota is used up."""
        if self.is_too_large or self.is_returnable:
            return False
        return self.rule.is_quota or self.wait_s is None


class Lease(msgspec.Struct, frozen=True):
    """A request may run: its reservation holds until the settlement. `shadow_denials`: denials by
    shadow rules, without effect. `is_uncounted`: Redis was unavailable, and no limiter has counted
    the reservation."""

    request: ReservationRequest
    reading: Reading
    shadow_denials: tuple[Denial, ...] = ()
    is_uncounted: bool = False

    @property
    def id(self) -> str:
        return self.request.lease_id


class Grant(msgspec.Struct, frozen=True):
    """How many more tokens of an answer may be generated: at most the requested number. `denial`
    has the reason for fewer tokens, with the level after this grant. `is_lost`: the lease was
    settled or not renewed in time, and gets nothing."""

    num_output_tokens: int
    denial: Denial | None = None
    shadow_denials: tuple[Denial, ...] = ()
    is_lost: bool = False


LOST: Final = Grant(0, is_lost=True)


class UsageBaseline(msgspec.Struct, frozen=True):
    """At least this much of a rule is used, according to the usage records. `since_ms` is the start
    of the window of a quota, as Unix time; a baseline of another window has no effect. Of a bucket,
    `since_ms` is the time of this use; the bucket has refilled since. Totals ignore `since_ms`.
    `is_update`: the limiter has received a baseline of this rule before, and has counted since."""

    rule: Rule
    num_used: int
    since_ms: int = 0
    is_update: bool = False


class Limiter(Protocol):
    """Counts reservations for one event loop, and never blocks it.

    An owner may change a limit while a request runs. The lease to extend or to settle may then have
    the same rules (`Rule.key`) in the same order with other amounts or in shadow, and the limiter
    counts by the new rules.

    An implementation on Redis raises `LimitsUnavailable` when Redis does not answer.
    """

    async def acquire(self, request: ReservationRequest) -> Lease | Denial:
        """Reserve of all rules or of none. Raises `LeaseExists`."""

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """Reserve more tokens of the answer: all of them or what is left."""

    async def settle(self, lease: Lease, usage: ActualUsage) -> None:
        """Replace the reservation by the actual usage, and free the slots of concurrency. A
        reservation in a window that is over stays there. Only the first settlement counts. For a
        day, Redis also accepts the settlement of an expired lease: its process could not renew the
        lease while Redis was unavailable."""

    async def renew(self, leases: Sequence[Lease]) -> None:
        """Keep all leases of this process for another `LEASE_TTL_S`. Settled leases may be among
        them."""

    async def release(self, lease_ids: Sequence[str]) -> None:
        """Return what these leases have reserved in Redis: their processes have ended. While Redis
        does not answer, the reservations stay."""

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        """Return how much of each rule is used, reservations included, in the order given."""

    async def restore(self, baselines: Sequence[UsageBaseline]) -> None:
        """Raise the use of quotas and buckets to the baselines: after a start, and after an outage
        of Redis. Concurrency is not in usage records."""


# -- Arithmetic of answers ----------------------------------------------------------------------


def num_used(rule: Rule, units: int) -> int:
    """Return whole tokens or requests, rounded up: a part of a token cannot be used."""
    return -(-units // rule.scale)


def level_of(rule: Rule, used: int, now_ms: int) -> Level:
    return Level(rule, num_used(rule, used), _until_free_s(rule, used, now_ms))


def binding_denial(denials: Iterable[Denial]) -> Denial:

    def duration(denial: Denial) -> tuple[bool, bool, float]:
        return denial.is_too_large, denial.wait_s is None, denial.wait_s or 0.0

    return max((each for each in denials if not each.rule.is_shadow), key=duration)


def denial_of(rule: Rule, used: int, cost: int, reading: Reading) -> Denial:
    """Return why a cost does not fit: `used` and `cost` in fixed-point units."""
    now_ms = reading.now_ms
    level, wait_s = level_of(rule, used, now_ms), _wait_s(rule, used, cost, now_ms)
    return Denial(rule, level, num_used(rule, cost), wait_s, reading)


def denials_of(
    indexes: Iterable[int], costs: Costs, reading: Reading, held: Collection[int] = ()
) -> tuple[Denial, ...]:
    """Return the denials by the rules at these indexes of a reading. Running requests may return
    some of the quotas at the indexes `held`."""
    denials = []
    for index in indexes:
        rule = reading.rules[index]
        cost = costs[rule.column]
        denial = denial_of(rule, reading.used[index], cost, reading)
        if index in held and cost <= rule.capacity:
            denial = structs.replace(denial, wait_s=ANSWER_WAIT_S, is_returnable=True)
        denials.append(denial)
    return tuple(denials)


def grant_of(asked: int, fitting: Mapping[int, int], costs: Costs, reading: Reading) -> Grant:
    """Return the grant when so many more tokens fit into the rules at these indexes. `costs` are
    the costs of a token."""
    enforced = {i: num for i, num in fitting.items() if not reading.rules[i].is_shadow}
    granted = max(0, min([asked, *enforced.values()]))
    wanted: Costs = tuple(cost * asked for cost in costs)  # type: ignore[assignment]
    shadows = denials_of([i for i, num in fitting.items() if num < granted], wanted, reading)
    if granted == asked:
        return Grant(granted, None, shadows)
    at = min(enforced, key=enforced.__getitem__)
    rule = reading.rules[at]
    # An answer that the rule ends has used this grant.
    used = reading.used[at] + granted * costs[rule.column]
    missing = (asked - granted) * costs[rule.column]
    return Grant(granted, denial_of(rule, used, missing, reading), shadows)


def _wait_s(rule: Rule, used: int, cost: int, now_ms: int) -> float | None:
    """Return the seconds until a cost fits. None: waiting does not help."""
    if cost > rule.capacity:
        return None
    if rule.kind is Kind.CONCURRENCY:
        return ANSWER_WAIT_S
    # Of a bucket (used + requested - limit) / (limit / period)
    return _until_free_s(rule, used + cost - rule.capacity, now_ms)


def _until_free_s(rule: Rule, units: int, now_ms: int) -> float | None:
    """Return the seconds until so many fixed-point units are free again, of a calendar's rule all.
    None: time alone frees nothing."""
    if rule.kind is Kind.BUCKET:
        return windows.refill_s(units, rule.amount, rule.tick_ms)
    if rule.kind is Kind.CALENDAR:
        return (windows.boundaries_at(rule, now_ms)[2] - now_ms) / 1000
    return None
