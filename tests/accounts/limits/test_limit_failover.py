"""Redis becomes unavailable, and available again."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.accounts.limits import builders
from tests.accounts.limits.builders import denied, granted, request_for, rule, slots, until, used
from tests.accounts.limits.conftest import MakeFailover
from tests.fakes.clock import FakeClock
from tests.fakes.limiter import FakeLimiter
from tests.tables import table
from vinery_accounts.limits import reservations
from vinery_accounts.limits.failover import FailoverLimiter, UnavailablePolicy
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.reservations import ActualUsage, LimitsUnavailable, UsageBaseline
from vinery_accounts.limits.rules import Metric, Rule, Window


@pytest.fixture
def store(clock: FakeClock) -> FakeLimiter:
    return FakeLimiter(clock)


@pytest.fixture
def refusing(store: FakeLimiter, failover: MakeFailover) -> FailoverLimiter:
    return failover(store, UnavailablePolicy.REFUSE)


@pytest.fixture
def sharing(store: FakeLimiter, failover: MakeFailover) -> FailoverLimiter:
    """It is one of four processes."""
    return failover(store, UnavailablePolicy.SHARE)


def store_of(limiter: FailoverLimiter) -> FakeLimiter:
    store = limiter._store
    assert isinstance(store, FakeLimiter)
    return store


async def become_available(limiter: FailoverLimiter) -> None:
    await answer_again(limiter)
    limiter.resume(limiter.num_outages)
    assert not limiter.state.is_degraded


async def answer_again(limiter: FailoverLimiter) -> None:
    store = store_of(limiter)
    store.is_unavailable = store.hangs = False
    await until(lambda: limiter.is_answering and not limiter.state.num_waiting)


async def notice(limiter: FailoverLimiter) -> None:
    """Let the limiter notice the outage."""
    with contextlib.suppress(LimitsUnavailable):
        await limiter.levels([rule()])
    assert limiter.state.is_degraded


async def test_while_the_store_answers_nothing_is_different(refusing: FailoverLimiter) -> None:
    tokens = rule(amount=100)
    lease = await granted(refusing, request_for(tokens, num_input_tokens=9))
    assert (await refusing.extend(lease, 1000)).num_output_tokens == 90
    await refusing.renew([lease])
    await denied(refusing, request_for(tokens))
    await refusing.settle(lease, ActualUsage(9, 1))
    assert await used(refusing, tokens) == [10]
    assert not refusing.state.is_degraded
    assert not lease.is_local


async def test_baselines_from_before_an_outage_do_not_end_it(refusing: FailoverLimiter) -> None:
    for _ in range(2):
        num_outages_when_read = refusing.num_outages
        store_of(refusing).is_unavailable = True
        with contextlib.suppress(LimitsUnavailable):
            await refusing.restore([])
        await notice(refusing)
        refusing.resume(refusing.num_outages)
        assert refusing.state.is_degraded  # it does not answer yet
        await answer_again(refusing)
        refusing.resume(num_outages_when_read)
        assert refusing.state.is_degraded


async def test_a_store_that_hangs_is_unavailable_after_the_deadline_and_not_waited_for_then(
    store: FakeLimiter, failover: MakeFailover, clock: FakeClock
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE, deadline_s=0.01)
    store.hangs = True
    with pytest.raises(LimitsUnavailable):
        await limiter.acquire(request_for(rule()))
    assert limiter.state.is_degraded
    assert limiter.state.unavailable_since_s == clock()

    await limiter.close()
    limiter = failover(store, UnavailablePolicy.REFUSE, probe_interval_s=3600.0)
    store.hangs, store.is_unavailable, store.num_calls = False, True, 0
    for _ in range(10):
        with pytest.raises(LimitsUnavailable):
            await limiter.acquire(request_for(rule()))
    assert store.num_calls == 1


async def test_refuse_lets_nothing_run_that_is_not_counted(refusing: FailoverLimiter) -> None:
    tokens = rule()
    lease = await granted(refusing, request_for(tokens))
    store_of(refusing).is_unavailable = True
    assert (await refusing.extend(lease, 9)).num_output_tokens == 0
    with pytest.raises(LimitsUnavailable):
        await refusing.acquire(request_for(tokens))
    with pytest.raises(LimitsUnavailable):
        await refusing.levels([tokens])
    with pytest.raises(LimitsUnavailable):
        await refusing.restore([UsageBaseline(tokens, 1)])

    await notice(refusing)
    await answer_again(refusing)
    assert (await refusing.extend(lease, 9)).num_output_tokens == 0
    refusing.resume(refusing.num_outages)
    assert (await refusing.extend(lease, 9)).num_output_tokens == 9
    assert not (await granted(refusing, request_for(rule()))).is_local
    assert refusing.state.unavailable_since_s is None


async def test_allow_reports_what_is_uncounted(store: FakeLimiter, failover: MakeFailover) -> None:
    limiter = failover(store, UnavailablePolicy.ALLOW)
    tokens = rule(amount=10)
    before = await granted(limiter, request_for(tokens))
    store.is_unavailable = True

    leases = [await granted(limiter, request_for(tokens, num_input_tokens=1000)) for _ in range(5)]
    grants = [await limiter.extend(lease, 100) for lease in (before, *leases)]
    for lease in leases:
        await limiter.settle(lease, ActualUsage(1000))

    assert all(lease.is_uncounted for lease in leases)
    assert [grant.num_output_tokens for grant in grants] == [100] * 6
    assert limiter.state.num_uncounted == 5
    with pytest.raises(LimitsUnavailable):
        await limiter.levels([tokens])


async def test_each_process_counts_a_share_of_the_amount(sharing: FailoverLimiter) -> None:
    tokens, slot = rule(amount=100), slots(8)
    store_of(sharing).is_unavailable = True
    lease = await granted(sharing, request_for(tokens, slot, num_input_tokens=19))
    assert lease.is_local
    assert (await sharing.extend(lease, 10)).num_output_tokens == 5
    await granted(sharing, request_for(slot))
    await denied(sharing, request_for(slot))
    levels = await sharing.levels([tokens])
    assert [(level.num_used, level.num_remaining) for level in levels] == [(25, 0)]
    await sharing.settle(lease, ActualUsage(19, 1))
    assert await used(sharing, tokens) == [20]


async def test_running_answers_continue_within_the_share(sharing: FailoverLimiter) -> None:
    tokens, requests, slot = rule(amount=100), rule(amount=100), slots(1)
    lease = await granted(sharing, request_for(tokens, requests, slot, num_input_tokens=49))
    store_of(sharing).is_unavailable = True
    grants = [(await sharing.extend(lease, 10)).num_output_tokens for _ in range(4)]
    # The store had counted 50 of 100, so 12 are left to each of four processes.
    assert grants == [10, 2, 0, 0]
    await sharing.settle(lease, ActualUsage(49, 13))
    await become_available(sharing)
    assert await used(sharing, tokens, slot) == [62, 0]


async def test_the_share_is_one_of_the_amount_as_it_is_now(sharing: FailoverLimiter) -> None:
    tokens, slot = rule(amount=100), slots(4)
    of_store = await granted(sharing, request_for(slot, tokens))
    store_of(sharing).is_unavailable = True
    of_share = await granted(sharing, request_for(tokens))
    raised = replace(tokens, amount=200)
    raised_share = builders.under(of_share, raised)
    raised_store = builders.under(of_store, slot, raised)
    extended = [(of_store, 20), (of_share, 20), (raised_share, 15), (raised_store, 15)]
    grants = [(await sharing.extend(*each)).num_output_tokens for each in extended]
    assert grants == [20, 3, 15, 10]

    await become_available(sharing)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)
    await sharing.restore([UsageBaseline(quota, 60, is_update=True)])
    store_of(sharing).is_unavailable = True
    assert await used(sharing, quota) == [15]


@pytest.mark.parametrize("is_restored_before", [True, False])
async def test_a_share_of_a_quota_begins_with_a_share_of_what_was_used(
    sharing: FailoverLimiter, is_restored_before: bool
) -> None:
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)
    if is_restored_before:
        await sharing.restore([UsageBaseline(quota, 80)])
    store_of(sharing).is_unavailable = True
    if not is_restored_before:
        await sharing.levels([quota])
        with pytest.raises(LimitsUnavailable):
            await sharing.restore([UsageBaseline(quota, 80)])

    # Of four processes each has 25, and 20 of them were used.
    await granted(sharing, request_for(quota, num_input_tokens=4))
    await denied(sharing, request_for(quota))


@pytest.mark.parametrize("window", [Window.NONE, Window.DAY])
async def test_shares_begin_at_the_store_s_count(sharing: FailoverLimiter, window: Window) -> None:
    quota = rule(Metric.TOKENS, window, amount=100)
    running = await granted(sharing, request_for(quota, num_input_tokens=40))
    await granted(sharing, request_for(quota, num_input_tokens=40))
    store_of(sharing).is_unavailable = True

    # Of four processes each has 25, and 21 of them were used when the store answered last.
    assert (await sharing.extend(running, 2)).num_output_tokens == 2
    await granted(sharing, request_for(quota, num_input_tokens=1))
    await denied(sharing, request_for(quota))


async def test_the_store_s_count_is_kept_of_the_latest_quotas(
    sharing: FailoverLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vinery_accounts.limits.failover._MAX_NOTED", 2)
    each = [rule(amount=100).of_end_user(name) for name in "abc"]
    for quota in (*each, each[1]):
        await granted(sharing, request_for(quota, num_input_tokens=40))
    store_of(sharing).is_unavailable = True
    await granted(sharing, request_for(each[0]))
    assert [level.num_used for level in await sharing.levels(each)] == [1, 21, 11]


@table("seed", range(20))
async def test_processes_in_an_outage_exceed_a_quota_by_no_more_than_was_under_way(
    failover: MakeFailover, clock: FakeClock, seed: int
) -> None:
    """Each process knows of the others what the store had counted at its own last request."""
    store, dice = FakeLimiter(clock), random.Random(seed)
    processes = [failover(store, UnavailablePolicy.SHARE) for _ in range(4)]
    quota = rule(Metric.TOKENS, Window.NONE, amount=1000)
    used, num_before = 0, dice.randrange(40, 200)
    for at in range(num_before + 400):
        if at == num_before:
            for process in processes:  # the last answer that each has of the store
                await process.acquire(request_for(quota, num_input_tokens=0))
            store.is_unavailable = True
        num_tokens = dice.randrange(1, 20)
        request = request_for(quota, num_input_tokens=num_tokens)
        answer = await dice.choice(processes).acquire(request)
        used += 0 if isinstance(answer, reservations.Denial) else num_tokens

    assert used <= 1000


@pytest.mark.parametrize("policy", UnavailablePolicy)
async def test_a_store_without_its_data_counts_again_when_it_has_its_baselines(
    store: FakeLimiter, failover: MakeFailover, policy: UnavailablePolicy
) -> None:
    limiter = failover(store, policy)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)
    await limiter.restore([UsageBaseline(quota, 100)])
    await denied(limiter, request_for(quota))
    store.is_unavailable = True
    await notice(limiter)

    store.forget()
    await answer_again(limiter)

    assert limiter.state.is_degraded
    match policy:
        case UnavailablePolicy.REFUSE:
            with pytest.raises(LimitsUnavailable):
                await limiter.acquire(request_for(quota))
        case UnavailablePolicy.ALLOW:
            assert (await granted(limiter, request_for(quota))).is_uncounted
        case UnavailablePolicy.SHARE:
            await denied(limiter, request_for(quota))
    await limiter.restore([UsageBaseline(quota, 100)])
    limiter.resume(limiter.num_outages)
    await denied(limiter, request_for(quota))
    assert not limiter.state.is_degraded


@table(
    "max_waiting, waiting, left",
    # What two of them had reserved counts as used, and their slots end with their leases.
    [(100, (5, 0), [45, 0]), (3, (3, 2), [47, 2])],
)
async def test_as_many_settlements_as_may_wait_until_the_store_is_available(
    clock: FakeClock, failover: MakeFailover, max_waiting: int, waiting: object, left: list[int]
) -> None:
    store, tokens, slot = FakeLimiter(clock), rule(amount=100), slots(9)
    limiter = failover(store, UnavailablePolicy.REFUSE, max_waiting=max_waiting)
    asked = [request_for(tokens, slot, num_input_tokens=9) for _ in range(5)]
    leases = [await granted(limiter, each) for each in asked]
    store.is_unavailable = True
    for lease in leases:
        await limiter.settle(lease, ActualUsage(9, 0))
    assert (limiter.state.num_waiting, limiter.state.num_dropped) == waiting

    await become_available(limiter)

    assert await used(limiter, tokens, slot) == left


async def test_a_caller_that_leaves_leaves_nothing_behind(refusing: FailoverLimiter) -> None:
    tokens, slot = rule(), slots(1)
    store_of(refusing).loses_answers = True
    caller = asyncio.create_task(refusing.acquire(request_for(tokens, slot)))
    while await used(store_of(refusing).inner, slot) == [0]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not refusing.state.is_degraded
    await become_available(refusing)
    assert await used(store_of(refusing).inner, tokens, slot) == [0, 0]

    store_of(refusing).loses_answers = False
    tokens, slot = rule(), slots(1)
    lease = await granted(refusing, request_for(tokens, slot))
    store_of(refusing).hangs, num_calls = True, store_of(refusing).num_calls
    settling = asyncio.create_task(refusing.settle(lease, reservations.NO_USAGE))
    await until(lambda: store_of(refusing).num_calls > num_calls)
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    await become_available(refusing)
    assert await used(store_of(refusing).inner, tokens, slot) == [0, 0]


async def test_a_store_that_has_lost_a_lease_is_treated_as_unavailable(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    tokens = rule(amount=100)
    for policy in UnavailablePolicy:
        limiter = failover(store, policy)
        granted_on = 0 if policy is UnavailablePolicy.REFUSE else 9
        lease = await granted(limiter, request_for(tokens))
        await store.inner.settle(lease, reservations.NO_USAGE)
        assert (await limiter.extend(lease, 9)).num_output_tokens == granted_on


async def test_a_reservation_without_answer_is_undone(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE, deadline_s=0.01)
    tokens, slot = rule(), slots(1)
    store.loses_answers = True
    with pytest.raises(LimitsUnavailable):
        await limiter.acquire(request_for(tokens, slot))
    assert await used(store.inner, tokens, slot) == [1, 1]
    await become_available(limiter)
    assert await used(store.inner, tokens, slot) == [0, 0]


async def test_shares_of_an_amount_are_together_the_whole(clock: FakeClock) -> None:
    tokens = rule(amount=103)
    processes = [MemoryLimiter(4, clock=clock) for _ in range(4)]
    num_granted = 0
    for process in processes:
        while isinstance(await process.acquire(request_for(tokens)), reservations.Lease):
            num_granted += 1
    assert num_granted == 100
    process = MemoryLimiter(4, clock=clock)
    await granted(process, request_for(slots(2)))
    await denied(process, request_for(slots(0)))
    with pytest.raises(ValueError, match="at least 1"):
        MemoryLimiter(0)


async def test_a_baseline_counts_for_its_share(clock: FakeClock) -> None:
    process = MemoryLimiter(4, clock=clock)
    budget = rule(amount=100)
    (level,) = await process.levels([budget])
    today_ms = int((clock() + level.reset_s - 86_400) * 1000)  # type: ignore[operator]
    await process.restore([UsageBaseline(budget, 41, since_ms=today_ms)])
    assert await used(process, budget) == [11]
    process = MemoryLimiter(2, clock=clock)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)
    await granted(process, request_for(quota, num_input_tokens=9))
    for used_by_all, used_here in ((60, 10), (50, 10), (80, 30), (120, 50)):
        await process.restore([UsageBaseline(quota, used_by_all, is_update=True)])
        assert await used(process, quota) == [used_here]


class LosesACancellation(FakeLimiter):
    """Like the client of Redis, which may report a cancelled attempt to connect as a failure."""

    has_lost_one = False

    async def levels(self, rules: Sequence[Rule]) -> tuple[reservations.Level, ...]:
        try:
            return await super().levels(rules)
        except asyncio.CancelledError:
            if self.has_lost_one:
                raise
            self.has_lost_one = True
            raise LimitsUnavailable("the attempt was cancelled") from None


async def test_a_lost_cancellation_hinders_no_end(clock: FakeClock, failover: MakeFailover) -> None:
    store = LosesACancellation(clock)
    limiter = failover(store, UnavailablePolicy.REFUSE, deadline_s=60.0)
    store.is_unavailable = True
    await notice(limiter)
    store.is_unavailable, store.hangs = False, True
    num_calls = store.num_calls
    await until(lambda: store.num_calls > num_calls)

    await asyncio.wait_for(limiter.close(), 60)

    assert store.has_lost_one
