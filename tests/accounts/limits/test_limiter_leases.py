"""A lease keeps a slot until it is settled, or until its process stops renewing it."""

from tests.accounts.limits.builders import denied, granted, request_for, rule, slots, used
from tests.accounts.limits.conftest import Fresh
from tests.fakes.clock import FakeClock
from vinery_accounts.limits.reservations import LEASE_TTL_S, RENEW_INTERVAL_S, ActualUsage, Limiter
from vinery_accounts.limits.rules import Window


async def test_each_answer_of_a_request_holds_a_slot_until_settled(limiter: Limiter) -> None:
    slot = slots(5)
    first = await granted(limiter, request_for(slot, num_answers=4))
    denial = await denied(limiter, request_for(slot, num_answers=2))
    assert (denial.num_needed, denial.wait_s) == (2, 1.0)
    assert (denial.is_too_large, denial.is_quota) == (False, False)
    too_many = await denied(limiter, request_for(slot, num_answers=570))
    assert (too_many.is_too_large, too_many.is_quota) == (True, False)
    await granted(limiter, request_for(slot))
    assert await used(limiter, slot) == [5]
    await limiter.settle(first, ActualUsage())
    assert await used(limiter, slot) == [1]
    await granted(limiter, request_for(slot, num_answers=4))


async def test_a_shadow_limit_counts_answers_that_it_would_have_let_in(limiter: Limiter) -> None:
    shadow = slots(5, is_shadow=True)
    within = await granted(limiter, request_for(shadow, num_answers=4))
    beyond = await granted(limiter, request_for(shadow, num_answers=4))
    assert [denial.num_needed for denial in beyond.shadow_denials] == [4]
    await limiter.renew([within, beyond])
    assert await used(limiter, shadow) == [4]
    await limiter.settle(beyond, ActualUsage())
    assert await used(limiter, shadow) == [4]
    await limiter.settle(within, ActualUsage())
    assert await used(limiter, shadow) == [0]


async def test_a_dead_process_loses_its_slot_for_ever(limiter: Limiter, clock: FakeClock) -> None:
    slot, tokens = slots(1), rule(amount=100)
    dead = await granted(limiter, request_for(slot, tokens, num_input_tokens=49))
    clock.pass_s(LEASE_TTL_S - 0.001)
    await limiter.renew([])
    await denied(limiter, request_for(slot))
    clock.pass_s(0.001)
    await limiter.renew([])
    await limiter.renew([dead])  # it does not come back
    await granted(limiter, request_for(slot))
    assert await used(limiter, slot, tokens) == [1, 50]
    assert (await limiter.extend(dead, 1)).is_lost


async def test_a_renewed_lease_alone_keeps_its_slots(limiter: Limiter, clock: FakeClock) -> None:
    slot = slots(9)
    kept, settled, _ = [await granted(limiter, request_for(slot, num_answers=n)) for n in (3, 1, 4)]
    await limiter.settle(settled, ActualUsage())
    assert await used(limiter, slot) == [7]
    for _ in range(10):
        clock.pass_s(LEASE_TTL_S / 2)
        await limiter.renew([kept, settled])
    assert await used(limiter, slot) == [3]
    await limiter.settle(kept, ActualUsage())
    assert await used(limiter, slot) == [0]


async def test_an_expired_lease_gives_no_quota_back(limiter: Limiter, clock: FakeClock) -> None:
    quota = rule(amount=100)
    kept = await granted(limiter, request_for(quota, num_output_tokens=50))
    await granted(limiter, request_for(quota, num_output_tokens=50))
    for _ in range(3):
        clock.pass_s(LEASE_TTL_S - 1)
        await limiter.renew([kept])
    assert (await denied(limiter, request_for(quota))).is_returnable
    clock.pass_s(LEASE_TTL_S)
    await limiter.renew([])
    assert not (await denied(limiter, request_for(quota))).is_returnable


async def test_redis_settles_a_lease_that_has_expired(redis_fresh: Fresh, clock: FakeClock) -> None:
    (store,) = redis_fresh(1)
    slot, budget = slots(1), rule(window=Window.NONE)
    unheard = await granted(store, request_for(slot, budget, num_output_tokens=60))
    clock.pass_s(LEASE_TTL_S)
    await granted(store, request_for(slot))
    for num_output_tokens in (10, 0):
        await store.settle(unheard, ActualUsage(num_output_tokens=num_output_tokens))
    assert await used(store, slot, budget) == [1, 10]


async def test_two_heartbeats_may_be_lost(redis_fresh: Fresh, clock: FakeClock) -> None:
    (store,) = redis_fresh(1)
    lease = await granted(store, request_for(slots(1)))
    # Processes look each second whether it is time.
    heartbeat_s = RENEW_INTERVAL_S + 1
    for _ in range(2):
        clock.pass_s(3 * heartbeat_s)
        await store.renew([lease])
    assert not (await store.extend(lease, 1)).is_lost


async def test_a_process_that_stood_keeps_leases(memory_fresh: Fresh, clock: FakeClock) -> None:
    (limiter,) = memory_fresh(1)
    slot, tokens = slots(1), rule(amount=100)
    lease = await granted(limiter, request_for(slot, tokens))

    clock.pass_s(10 * LEASE_TTL_S)

    await denied(limiter, request_for(slot))
    assert (await limiter.extend(lease, 9)).num_output_tokens == 9
    await limiter.renew([lease])
    await denied(limiter, request_for(slot))
    await limiter.settle(lease, ActualUsage(num_output_tokens=5))
    assert await used(limiter, slot, tokens) == [0, 5]
