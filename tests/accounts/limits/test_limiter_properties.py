"""Limits hold in any order of reservations, extensions, settlements and lost memories."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.accounts.limits.conftest import Fresh
from tests.examples import examples
from tests.fakes.clock import START_S, FakeClock
from vinery_accounts.limits import reservations
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.reservations import ActualUsage, Denial, Lease, ReservationRequest
from vinery_accounts.limits.rules import Metric, Rule, Weekday, Window
from vinery_accounts.usage.entries import Weights

TOTAL = Rule(1, "key:1", Metric.TOKENS, Window.NONE, 300)
BUCKET = Rule(2, "key:1", Metric.TOKENS, Window.MINUTE, 90)
SLOTS = Rule(3, "user:1", Metric.CONCURRENCY, Window.NONE, 3)
RULES = (
    TOTAL,
    BUCKET,
    SLOTS,
    Rule(4, "project:1", Metric.REQUESTS, Window.MINUTE, 7),
    Rule(5, "project:1", Metric.OUTPUT_TOKENS, Window.DAY, 60),
    Rule(12, "project:1", Metric.TOKENS, Window.HOUR, 700),
    Rule(6, "platform", Metric.INPUT_TOKENS, Window.MONTH, 400, "Africa/Abidjan"),
    Rule(11, "platform", Metric.OUTPUT_TOKENS, Window.WEEK, 130, week_start=Weekday.MONDAY),
    Rule(7, "platform", Metric.WEIGHTED_TOKENS, Window.MINUTE, 77),
    Rule(8, "key:1", Metric.TOKENS, Window.DAY, 50, is_shadow=True),
    Rule(9, "key:1", Metric.CONCURRENCY, Window.NONE, 1, is_shadow=True),
    Rule(10, "model:m", Metric.WEIGHTED_TOKENS, Window.NONE, 200, is_shadow=True),
)


# Nearly a new month, in UTC and in Abidjan; and any time.
NEARLY_MIDNIGHT_S = datetime(2027, 2, 28, 23, 59, 48, tzinfo=UTC).timestamp()
NEARLY_DEAD_S = reservations.LEASE_TTL_S - 0.001
starts = st.sampled_from([NEARLY_MIDNIGHT_S, START_S])


# -- Steps -------------------------------------------------------------------------------------


Acquire = make_dataclass(
    "Acquire",
    ["rules", "num_input_tokens", "num_output_tokens", "num_cached_tokens", "weights"],
    frozen=True,
)
Extend = make_dataclass("Extend", ["which", "num_output_tokens"], frozen=True)
Settle = make_dataclass(
    "Settle", ["which", "input_share", "output_share", "num_requests"], frozen=True
)
Renew = make_dataclass("Renew", ["every"], frozen=True)
Pass = make_dataclass("Pass", ["seconds"], frozen=True)
# The limiters lose their memory. The usage records stay.
Restart = make_dataclass("Restart", [], frozen=True)
Step = Acquire | Extend | Settle | Renew | Pass | Restart

few_tokens = st.integers(0, 40)
weight = st.sampled_from([0, 1, 125, 333, 1000, 4000])
acquires = st.builds(
    Acquire,
    rules=st.lists(st.sampled_from(RULES), unique=True).map(tuple),
    num_input_tokens=few_tokens,
    num_output_tokens=st.integers(0, 9),
    num_cached_tokens=st.integers(0, 10),
    weights=st.builds(Weights, weight, weight, weight, weight),
)
which = st.integers(0, 30)
share = st.floats(0, 1)
steps = st.lists(
    st.one_of(
        acquires,
        acquires,
        # More than any limit of output here, too.
        st.builds(Extend, which, st.integers(0, 120)),
        st.builds(Settle, which, share, share, st.integers(0, 1)),
        st.builds(Renew, st.integers(1, 3)),
        st.builds(Pass, st.sampled_from([0.001, 0.4, 3.0, 11.0, NEARLY_DEAD_S, 3600.0, 90_000.0])),
        st.just(Restart()),
    ),
    max_size=40,
)


# Few sorts, so that relevant steps follow upon one another.
steps_of_a_bucket: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.sampled_from([Acquire((BUCKET,), num, 50, 0, Weights()) for num in (0, 40)]),
        st.just(Extend(0, 30)),
        st.just(Settle(0, 1, 0, 1)),
        st.builds(Pass, st.sampled_from([7.0, 29.0])),
    ),
    min_size=6,
    max_size=25,
).map(lambda steps: [each for step in steps for each in (step, Renew(1))])


@dataclass
class Move:
    """Tokens taken from the bucket at once."""

    at_s: float
    num_tokens: int


@dataclass
class Held:
    """A lease, and our own record of it."""

    lease: Lease
    num_output_tokens: int
    renewed_at_s: float
    bucket_moves: list[Move] = field(default_factory=list)
    spent: ActualUsage | None = None

    @property
    def num_tokens(self) -> int:
        """The number of reserved tokens, or of finally spent tokens."""
        if self.spent is not None:
            return self.spent.num_tokens
        return self.lease.request.num_prompt_tokens + self.num_output_tokens

    def return_unused(self, num_tokens: int) -> None:
        """The last tokens taken are the unused tokens, and so were never taken."""
        for move in reversed(self.bucket_moves):
            part = min(num_tokens, move.num_tokens)
            move.num_tokens -= part
            num_tokens -= part


@dataclass
class System:
    """Some limiters on one store, and our own record of usage."""

    make: Callable[[], list[reservations.Limiter]]
    clock: FakeClock
    limiters: list[reservations.Limiter] = field(init=False)
    held: list[Held] = field(default_factory=list)
    bucket_moves: list[Move] = field(default_factory=list)
    num_steps: int = 0

    def __post_init__(self) -> None:
        self.limiters = self.make()

    @property
    def limiter(self) -> reservations.Limiter:
        """The limiters by turns."""
        self.num_steps += 1
        return self.limiters[self.num_steps % len(self.limiters)]

    async def take(self, step: Step) -> object:
        match step:
            case Acquire():
                return await self.acquire(step)
            case Extend() if self.held:
                return await self.extend(self.held[step.which % len(self.held)], step)
            case Settle() if self.held:
                held = self.held[step.which % len(self.held)]
                # A store remembers expired leases, and a process does not.
                if held.spent is not None or self.is_open(held):
                    return await self.settle(held, step)
            case Renew():
                renewed = self.held[:: step.every]
                await self.limiter.renew([held.lease for held in renewed])
                for held in renewed:
                    if self.is_open(held):
                        held.renewed_at_s = self.clock()
            case Pass():
                self.clock.pass_s(step.seconds)
                # A process finds its dead leases only then.
                await self.limiter.renew([])
            case Restart():
                await self.restart()
        return None

    async def acquire(self, step: Acquire) -> Lease | Denial:
        request = ReservationRequest(
            lease_id=f"req-{self.num_steps}",
            rules=step.rules,
            num_prompt_tokens=step.num_input_tokens,
            num_output_tokens=step.num_output_tokens,
            num_cached_tokens=min(step.num_cached_tokens, step.num_input_tokens),
            weights=step.weights,
        )
        before = await self.levels()
        answer = await self.limiter.acquire(request)
        if isinstance(answer, Denial):
            assert await self.levels() == before
        else:
            held = Held(answer, step.num_output_tokens, self.clock())
            self.held.append(held)
            self.moved(held, step.num_input_tokens + step.num_output_tokens)
        return answer

    async def extend(self, held: Held, step: Extend) -> reservations.Grant:
        grant = await self.limiter.extend(held.lease, step.num_output_tokens)
        assert 0 <= grant.num_output_tokens <= step.num_output_tokens
        assert grant.is_lost is not self.is_open(held)
        held.num_output_tokens += grant.num_output_tokens
        self.moved(held, grant.num_output_tokens)
        return grant

    async def settle(self, held: Held, step: Settle) -> None:
        num_prompt_tokens = int(held.lease.request.num_prompt_tokens * step.input_share)
        num_output_tokens = int(held.num_output_tokens * step.output_share)
        spent = ActualUsage(num_prompt_tokens, num_output_tokens, num_requests=step.num_requests)
        if self.is_open(held):
            before = held.num_tokens
            held.spent = spent
            held.return_unused(before - held.num_tokens)
        await self.limiter.settle(held.lease, spent)
        levels = await self.levels()
        await self.limiter.settle(held.lease, ActualUsage())
        assert await self.levels() == levels

    async def restart(self) -> None:
        """End all requests: slots are free and buckets full, and quotas keep their use."""
        self.limiters = self.make()
        self.bucket_moves.clear()
        for held in self.held:
            num_prompt_tokens = held.lease.request.num_prompt_tokens
            held.spent = held.spent or ActualUsage(num_prompt_tokens, held.num_output_tokens)
        await self.limiter.restore([reservations.UsageBaseline(TOTAL, self.num_tokens_of(TOTAL))])

    def num_tokens_of(self, rule: Rule) -> int:
        return sum(held.num_tokens for held in self.held if rule in held.lease.request.rules)

    async def levels(self) -> tuple[reservations.Level, ...]:
        return await self.limiter.levels(RULES)

    def is_open(self, held: Held) -> bool:
        age_ms = int(self.clock() * 1000) - int(held.renewed_at_s * 1000)
        return held.spent is None and age_ms < reservations.LEASE_TTL_S * 1000

    def moved(self, held: Held, num_tokens: int) -> None:
        if BUCKET in held.lease.request.rules:
            move = Move(self.clock(), num_tokens)
            held.bucket_moves.append(move)
            self.bucket_moves.append(move)

    async def check(self) -> None:
        """Check the limits, by our own record and by the limiter."""
        level = {each.rule: each for each in await self.levels()}
        assert all(each.num_used >= 0 for each in level.values())
        assert all(each.num_remaining >= 0 for each in level.values() if not self.can_owe(each))
        assert self.num_tokens_of(TOTAL) == level[TOTAL].num_used <= TOTAL.amount
        num_slots = sum(self.is_open(h) and SLOTS in h.lease.request.rules for h in self.held)
        assert num_slots == level[SLOTS].num_used <= SLOTS.amount
        assert_never_faster_than(BUCKET.amount, self.bucket_moves)

    @staticmethod
    def can_owe(level: reservations.Level) -> bool:
        # Here tokens that were reserved as cached are not, and may cost more.
        return level.rule.metric is Metric.WEIGHTED_TOKENS


def assert_never_faster_than(amount: int, moves: list[Move]) -> None:
    """In no span of time is more taken than a full bucket and its refill."""
    for first in range(len(moves)):
        num_taken = 0
        for move in moves[first:]:
            num_taken += move.num_tokens
            # A millisecond is as fine as limiters look at clocks.
            elapsed_s = move.at_s - moves[first].at_s + 0.001
            assert num_taken <= amount + amount * elapsed_s / 60


# -- What always holds -------------------------------------------------------------------------

any_order = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@any_order
@given(start_s=starts, steps=steps)
async def test_limits_hold_in_any_order(
    fresh: Fresh, clock: FakeClock, start_s: float, steps: list[Step]
) -> None:
    clock.now_s = start_s
    system = System(lambda: fresh(2), clock)
    for step in steps:
        await system.take(step)
        await system.check()


@any_order
@given(start_s=starts, steps=st.one_of(steps, steps_of_a_bucket))
async def test_both_limiters_return_the_same(
    redis_fresh: Fresh, clock: FakeClock, start_s: float, steps: list[Step]
) -> None:
    clock.now_s = start_s
    memory_clock = FakeClock(start_s)

    def memory() -> list[reservations.Limiter]:
        # Two clocks, because each system moves its own.
        return [MemoryLimiter(clock=memory_clock)]

    systems = System(memory, memory_clock), System(lambda: redis_fresh(3), clock)

    for step in steps:
        answer, answer_on_redis = [comparable(await system.take(step)) for system in systems]
        assert answer == answer_on_redis
        levels, levels_on_redis = [await system.levels() for system in systems]
        assert levels == levels_on_redis


def comparable(answer: object) -> object:
    """Return equal values for answers that mean the same."""
    match answer:
        case Lease(reading=reading, shadow_denials=shadow_denials):
            return reading.levels, list(map(comparable, shadow_denials))
        case Denial(rule=rule, level=level, num_needed=num_needed, wait_s=wait_s):
            return rule, level, num_needed, wait_s
        case reservations.Grant(denial=denial, shadow_denials=shadow_denials):
            denials = comparable(denial), list(map(comparable, shadow_denials))
            return answer.num_output_tokens, answer.is_lost, *denials
        case _:
            return answer


@settings(any_order, max_examples=examples(400))
@given(steps=steps_of_a_bucket)
async def test_no_more_is_used_of_a_bucket_than_flows_into_it(
    memory_fresh: Fresh, clock: FakeClock, steps: list[Step]
) -> None:
    """Also where answers run for longer than it takes to refill. Redis does the same, see above."""
    clock.now_s = START_S
    system = System(lambda: memory_fresh(2), clock)

    for step in steps:
        await system.take(step)
        await system.check()
        # The next lease to settle belongs to a running request.
        system.held = [held for held in system.held if held.spent is None]


@any_order
@given(
    amount=st.integers(1, 60),
    sizes=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 30)), max_size=25
    ),
)
async def test_parallel_requests_never_pass_together(
    fresh: Fresh, clock: FakeClock, amount: int, sizes: list[tuple[int, int, int]]
) -> None:
    clock.now_s = START_S
    limiters = fresh(3)
    quota = Rule(1, "key:1", Metric.TOKENS, Window.DAY, amount)
    open_tokens: dict[str, int] = {}

    async def request(number: int, num_inputs: int, num_outputs: int, num_more: int) -> None:
        limiter = limiters[number % 3]
        asked = ReservationRequest(num_inputs, num_outputs, lease_id=f"r{number}", rules=(quota,))
        lease = await limiter.acquire(asked)
        if isinstance(lease, Denial):
            return
        open_tokens[lease.id] = num_inputs + num_outputs
        assert sum(open_tokens.values()) <= amount
        open_tokens[lease.id] += (await limiter.extend(lease, num_more)).num_output_tokens
        assert sum(open_tokens.values()) <= amount
        if number % 2:
            open_tokens[lease.id] = num_inputs
            await limiter.settle(lease, ActualUsage(num_inputs))

    await asyncio.gather(*(request(number, *size) for number, size in enumerate(sizes)))

    (level,) = await limiters[0].levels([quota])
    assert level.num_used == sum(open_tokens.values()) <= amount


@any_order
@given(
    window=st.sampled_from([Window.MINUTE, Window.HOUR]),
    amount=st.integers(1, 1_000_000),
    first=st.floats(0, 1),
    second=st.floats(0, 1),
)
async def test_after_its_wait_a_bucket_grants_the_request(
    fresh: Fresh, clock: FakeClock, window: Window, amount: int, first: float, second: float
) -> None:
    clock.now_s = START_S
    (limiter,) = fresh(1)
    bucket = Rule(1, "key:1", Metric.TOKENS, window, amount)
    one = ReservationRequest(int(amount * first), lease_id="one", rules=(bucket,))
    await limiter.acquire(one)
    asked = ReservationRequest(int(amount * second), lease_id="two", rules=(bucket,))

    answer = await limiter.acquire(asked)
    if isinstance(answer, Denial):
        wait_s = answer.wait_s or 0.0
        assert wait_s > 0
        clock.pass_s(wait_s + 0.001)
        answer = await limiter.acquire(asked)

    assert isinstance(answer, Lease)


@pytest.mark.parametrize("num_rules", [1, 5_000])
async def test_idle_scopes_are_forgotten(clock: FakeClock, num_rules: int) -> None:
    limiter = MemoryLimiter(clock=clock)

    for number in range(num_rules):
        bucket = Rule(number, f"key:{number}", Metric.TOKENS, Window.MINUTE, 60)
        asked = ReservationRequest(1, lease_id=f"r{number}", rules=(bucket,))
        lease = await limiter.acquire(asked)
        assert isinstance(lease, Lease)
        await limiter.settle(lease, ActualUsage(1))
        clock.pass_s(0.1)

    # A second each to be full again, so ten at a time are not.
    assert len(limiter._counters) < 50
    assert not limiter._open
