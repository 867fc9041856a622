"""Redis becomes unavailable, and available again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.accounts.limits.builders import (
    denied,
    granted,
    request_for,
    rule,
    slots,
    under,
    until,
    used,
)
from tests.accounts.limits.conftest import MakeFailover
from tests.fakes.clock import FakeClock
from tests.fakes.limiter import FakeLimiter
from vinery_accounts.limits.failover import FailoverLimiter, UnavailablePolicy
from vinery_accounts.limits.reservations import (
    NO_USAGE,
    ActualUsage,
    Denial,
    Level,
    LimitsUnavailable,
    UsageBaseline,
)
from vinery_accounts.limits.rules import Metric, Rule, Window


@pytest.fixture
def store(clock: FakeClock) -> FakeLimiter:
    return FakeLimiter(clock)


async def become_available(store: FakeLimiter, limiter: FailoverLimiter) -> None:
    await answer_again(store, limiter)
    limiter.resume(limiter.num_outages)
    assert not limiter.state.is_degraded


async def answer_again(store: FakeLimiter, limiter: FailoverLimiter) -> None:
    store.is_unavailable = store.hangs = False
    await until(lambda: limiter.is_answering and not limiter.state.num_waiting)


async def notice(limiter: FailoverLimiter) -> None:
    """Let the limiter notice the outage."""
    with contextlib.suppress(LimitsUnavailable):
        await limiter.levels([rule()])
    assert limiter.state.is_degraded


# -- Unavailable ------------------------------------------------------------------------------


async def test_while_it_answers_nothing_is_different(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    tokens = rule(amount=100)

    lease = await granted(limiter, request_for(tokens, num_input_tokens=9))
    assert (await limiter.extend(lease, 1000)).num_output_tokens == 90
    await limiter.renew([lease])
    await denied(limiter, request_for(tokens))
    await limiter.settle(lease, ActualUsage(9, 1))

    assert await used(limiter, tokens) == [10]
    assert not limiter.state.is_degraded
    assert not lease.is_local


async def test_a_store_that_hangs_is_unavailable_after_the_deadline(
    store: FakeLimiter, failover: MakeFailover, clock: FakeClock
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE, deadline_s=0.01)
    store.hangs = True

    with pytest.raises(LimitsUnavailable):
        await limiter.acquire(request_for(rule()))

    assert limiter.state.is_degraded
    assert limiter.state.unavailable_since_s == clock()


async def test_no_request_waits_for_a_store_that_is_known_to_be_unavailable(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE, probe_interval_s=3600.0)
    store.is_unavailable = True
    num_calls = 1

    for _ in range(10):
        with pytest.raises(LimitsUnavailable):
            await limiter.acquire(request_for(rule()))

    assert store.num_calls == num_calls


async def test_refuse_lets_nothing_run_that_is_not_counted(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    tokens = rule()
    lease = await granted(limiter, request_for(tokens))
    store.is_unavailable = True

    assert (await limiter.extend(lease, 9)).num_output_tokens == 0
    with pytest.raises(LimitsUnavailable):
        await limiter.acquire(request_for(tokens))
    with pytest.raises(LimitsUnavailable):
        await limiter.levels([tokens])
    with pytest.raises(LimitsUnavailable):
        await limiter.restore([UsageBaseline(tokens, 1)])


async def test_allow_runs_all_requests_and_reports_how_many_were_not_counted(
    store: FakeLimiter, failover: MakeFailover
) -> None:
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


async def test_share_counts_a_share_in_this_process(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.SHARE)
    tokens, slot = rule(amount=100), slots(8)
    store.is_unavailable = True

    lease = await granted(limiter, request_for(tokens, slot, num_input_tokens=19))
    assert lease.is_local
    assert (await limiter.extend(lease, 10)).num_output_tokens == 5
    await granted(limiter, request_for(slot))
    await denied(limiter, request_for(slot))
    levels = await limiter.levels([tokens])
    assert [(level.num_used, level.num_remaining) for level in levels] == [(25, 0)]
    await limiter.settle(lease, ActualUsage(19, 1))

    assert await used(limiter, tokens) == [20]


@pytest.mark.parametrize("is_restored_before", [True, False])
async def test_a_share_of_a_quota_begins_with_a_share_of_what_was_used(
    store: FakeLimiter, failover: MakeFailover, is_restored_before: bool
) -> None:
    limiter = failover(store, UnavailablePolicy.SHARE)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)
    if is_restored_before:
        await limiter.restore([UsageBaseline(quota, 80)])
    store.is_unavailable = True
    if not is_restored_before:
        await limiter.levels([quota])
        with pytest.raises(LimitsUnavailable):
            await limiter.restore([UsageBaseline(quota, 80)])

    # Of four processes each has 25, and 20 of them were used.
    await granted(limiter, request_for(quota, num_input_tokens=4))
    await denied(limiter, request_for(quota))


@pytest.mark.parametrize("window", [Window.NONE, Window.DAY])
async def test_a_share_begins_with_what_the_store_has_counted_and_no_record_has_yet(
    store: FakeLimiter, failover: MakeFailover, window: Window
) -> None:
    limiter = failover(store, UnavailablePolicy.SHARE)
    quota = rule(Metric.TOKENS, window, amount=100)
    running = await granted(limiter, request_for(quota, num_input_tokens=40))
    await granted(limiter, request_for(quota, num_input_tokens=40))
    store.is_unavailable = True

    # Of four processes each has 25, and 21 of them were used when the store answered last.
    assert (await limiter.extend(running, 2)).num_output_tokens == 2
    await granted(limiter, request_for(quota, num_input_tokens=1))
    await denied(limiter, request_for(quota))


@pytest.mark.parametrize("seed", range(20))
async def test_processes_in_an_outage_exceed_a_quota_by_no_more_than_was_under_way(
    store: FakeLimiter, failover: MakeFailover, seed: int
) -> None:
    """Each process knows of the others what the store had counted at its own last request."""
    dice = random.Random(seed)
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
        used += 0 if isinstance(answer, Denial) else num_tokens

    assert used <= 1000


async def test_running_answers_continue_within_the_share(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.SHARE)
    tokens, requests, slot = rule(amount=100), rule(amount=100), slots(1)
    lease = await granted(limiter, request_for(tokens, requests, slot, num_input_tokens=49))
    store.is_unavailable = True

    grants = [(await limiter.extend(lease, 10)).num_output_tokens for _ in range(4)]
    # The store had counted 50 of 100, so 12 are left to each of four processes.
    assert grants == [10, 2, 0, 0]
    await limiter.settle(lease, ActualUsage(49, 13))

    await become_available(store, limiter)
    assert await used(limiter, tokens, slot) == [62, 0]


async def test_the_share_is_one_of_the_amount_as_it_is_now(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.SHARE)
    tokens, slot = rule(amount=100), slots(4)
    of_store = await granted(limiter, request_for(slot, tokens))
    store.is_unavailable = True
    of_share = await granted(limiter, request_for(tokens))
    raised = replace(tokens, amount=200)

    assert (await limiter.extend(of_store, 20)).num_output_tokens == 20
    assert (await limiter.extend(of_share, 20)).num_output_tokens == 3
    assert (await limiter.extend(under(of_share, raised), 15)).num_output_tokens == 15
    assert (await limiter.extend(under(of_store, slot, raised), 15)).num_output_tokens == 10


# -- Available again-----------------------------------------------------------------------------


async def test_an_outage_ends_by_itself(store: FakeLimiter, failover: MakeFailover) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    store.is_unavailable = True
    with pytest.raises(LimitsUnavailable):
        await limiter.acquire(request_for(rule()))

    await become_available(store, limiter)

    lease = await granted(limiter, request_for(rule()))
    assert not lease.is_local
    assert limiter.state.unavailable_since_s is None


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
    await answer_again(store, limiter)

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


async def test_answers_get_no_more_of_a_store_without_its_baselines(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    lease = await granted(limiter, request_for(rule()))
    store.is_unavailable = True
    await notice(limiter)

    await answer_again(store, limiter)

    assert (await limiter.extend(lease, 9)).num_output_tokens == 0
    limiter.resume(limiter.num_outages)
    assert (await limiter.extend(lease, 9)).num_output_tokens == 9


async def test_baselines_from_before_another_outage_do_not_end_it(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    for _ in range(2):
        num_outages_when_read = limiter.num_outages
        store.is_unavailable = True
        with contextlib.suppress(LimitsUnavailable):
            await limiter.restore([])
        await notice(limiter)
        await answer_again(store, limiter)

        limiter.resume(num_outages_when_read)
        assert limiter.state.is_degraded


async def test_a_store_that_does_not_answer_stays_unavailable(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    store.is_unavailable = True
    await notice(limiter)

    limiter.resume(limiter.num_outages)

    assert limiter.state.is_degraded


async def test_settlements_wait_until_the_store_is_available(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    tokens, slot = rule(amount=100), slots(9)
    leases = [
        await granted(limiter, request_for(tokens, slot, num_input_tokens=9)) for _ in range(5)
    ]
    store.is_unavailable = True
    for lease in leases:
        await limiter.settle(lease, ActualUsage(9, 0))
    assert limiter.state.num_waiting == 5

    await become_available(store, limiter)

    assert await used(limiter, tokens, slot) == [45, 0]


async def test_the_number_of_waiting_settlements_is_limited(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE, max_waiting=3)
    tokens, slot = rule(amount=100), slots(9)
    leases = [
        await granted(limiter, request_for(tokens, slot, num_input_tokens=9)) for _ in range(5)
    ]
    store.is_unavailable = True
    for lease in leases:
        await limiter.settle(lease, NO_USAGE)

    assert (limiter.state.num_waiting, limiter.state.num_dropped) == (3, 2)
    await become_available(store, limiter)

    # What two of them had reserved counts as used, and their slots end with their leases.
    assert await used(limiter, tokens, slot) == [20, 2]


async def test_a_reservation_whose_answer_is_lost_is_taken_back(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE, deadline_s=0.01)
    tokens, slot = rule(), slots(1)
    store.loses_answers = True

    with pytest.raises(LimitsUnavailable):
        await limiter.acquire(request_for(tokens, slot))
    assert await used(store.inner, tokens, slot) == [1, 1]
    await become_available(store, limiter)

    assert await used(store.inner, tokens, slot) == [0, 0]


async def test_a_caller_that_leaves_during_a_call_leaves_nothing_behind(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    tokens, slot = rule(), slots(1)
    store.loses_answers = True
    caller = asyncio.create_task(limiter.acquire(request_for(tokens, slot)))
    while await used(store.inner, slot) == [0]:  # noqa: ASYNC110
        await asyncio.sleep(0)

    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not limiter.state.is_degraded
    await become_available(store, limiter)

    assert await used(store.inner, tokens, slot) == [0, 0]


async def test_a_settlement_that_is_interrupted_still_arrives(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.REFUSE)
    tokens, slot = rule(), slots(1)
    lease = await granted(limiter, request_for(tokens, slot))
    store.hangs = True
    settling = asyncio.create_task(limiter.settle(lease, NO_USAGE))
    await asyncio.sleep(0.01)

    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    await become_available(store, limiter)

    assert await used(store.inner, tokens, slot) == [0, 0]


async def test_a_store_that_has_lost_a_lease_is_treated_as_unavailable(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    tokens = rule(amount=100)
    for policy, granted_on in (
        (UnavailablePolicy.REFUSE, 0),
        (UnavailablePolicy.ALLOW, 9),
        (UnavailablePolicy.SHARE, 9),
    ):
        limiter = failover(store, policy)
        lease = await granted(limiter, request_for(tokens))
        await store.inner.settle(lease, NO_USAGE)

        assert (await limiter.extend(lease, 9)).num_output_tokens == granted_on


async def test_a_share_begins_with_the_outage_also_after_an_update(
    store: FakeLimiter, failover: MakeFailover
) -> None:
    limiter = failover(store, UnavailablePolicy.SHARE)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)

    await limiter.restore([UsageBaseline(quota, 60, is_update=True)])
    store.is_unavailable = True

    assert await used(limiter, quota) == [15]


# -- Closing ---------------------------------------------------------------------------------------


class LosesACancellation(FakeLimiter):
    """Like the client of Redis, which may report a cancelled attempt to connect as a failure."""

    has_lost_one = False

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        try:
            return await super().levels(rules)
        except asyncio.CancelledError:
            if self.has_lost_one:
                raise
            self.has_lost_one = True
            raise LimitsUnavailable("the attempt was cancelled") from None


async def test_a_limiter_closes_although_a_cancellation_is_lost(
    clock: FakeClock, failover: MakeFailover
) -> None:
    store = LosesACancellation(clock)
    limiter = failover(store, UnavailablePolicy.REFUSE, deadline_s=60.0)
    store.is_unavailable = True
    await notice(limiter)
    store.is_unavailable, store.hangs = False, True
    num_calls = store.num_calls
    await until(lambda: store.num_calls > num_calls)

    await asyncio.wait_for(limiter.close(), 60)

    assert store.has_lost_one
