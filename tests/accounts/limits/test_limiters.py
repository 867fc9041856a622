"""The behaviour of every limiter, in process and on Redis."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.accounts.limits.builders import (
    denied,
    granted,
    request_for,
    rule,
    slots,
    spend,
    under,
    used,
)
from tests.accounts.limits.conftest import Fresh
from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery_accounts.base.limit_table import MAX_COST, MAX_WEIGHT
from vinery_accounts.limits import reservations
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.reservations import (
    LEASE_TTL_S,
    NO_USAGE,
    ActualUsage,
    Limiter,
    UsageBaseline,
)
from vinery_accounts.limits.rules import Metric, Rule, Window
from vinery_accounts.limits.windows import window_at
from vinery_accounts.usage.entries import Weights

MINUTE = Window.MINUTE


def refusing_rule(grant: reservations.Grant) -> Rule | None:
    return None if grant.denial is None else grant.denial.rule


async def test_a_request_reserves_tokens_and_gets_back_the_unused(limiter: Limiter) -> None:
    metrics = (Metric.TOKENS, Metric.INPUT_TOKENS, Metric.OUTPUT_TOKENS, Metric.REQUESTS)
    asked = request_for(*map(rule, metrics), num_input_tokens=30, num_output_tokens=8)
    lease = await granted(limiter, asked)
    assert await used(limiter, *asked.rules) == [38, 30, 8, 1]
    assert [level.num_used for level in lease.reading.levels] == [38, 30, 8, 1]
    await limiter.extend(lease, 20)
    await limiter.settle(lease, ActualUsage(num_prompt_tokens=30, num_output_tokens=5))
    assert await used(limiter, *asked.rules) == [35, 30, 5, 1]
    lease = await granted(limiter, request_for(*asked.rules, num_input_tokens=30))
    await limiter.settle(lease, NO_USAGE)
    assert await used(limiter, *asked.rules) == [35, 30, 5, 1]


async def test_what_was_used_beyond_a_reservation_is_owed(limiter: Limiter) -> None:
    tokens = rule(amount=100)
    first = await granted(limiter, request_for(tokens))
    second = await granted(limiter, request_for(tokens))
    await limiter.settle(first, ActualUsage(num_prompt_tokens=150))
    (level,) = await limiter.levels([tokens])
    assert (level.num_used, level.num_remaining) == (151, -51)
    grant = await limiter.extend(second, 1)
    assert (grant.num_output_tokens, grant.is_lost) == (0, False)
    assert refusing_rule(grant) == tokens
    assert await used(limiter, tokens) == [151]


@table("window", [Window.MINUTE, Window.DAY, Window.NONE])
async def test_the_largest_budget_is_exact_with_the_highest_and_the_lowest_price(
    limiter: Limiter, window: Window
) -> None:
    budget = rule(Metric.COST, window, MAX_COST)
    prices = Weights(uncached_milli=MAX_WEIGHT * 1000, output_milli=1, is_price=True)
    num = MAX_COST // MAX_WEIGHT - 1
    lease = await granted(limiter, request_for(budget, num_input_tokens=num, weights=prices))
    assert await used(limiter, budget) == [MAX_COST - MAX_WEIGHT + 1]  # rounded up

    grant = await limiter.extend(lease, 2 * MAX_WEIGHT * 1000)
    assert grant.num_output_tokens == MAX_WEIGHT * 1000 - 1
    assert await used(limiter, budget) == [MAX_COST]
    await denied(limiter, request_for(budget, weights=prices))
    await limiter.settle(lease, ActualUsage(num, MAX_WEIGHT * 1000 - 1))
    await granted(limiter, request_for(budget, weights=prices))
    await denied(limiter, request_for(budget, weights=prices))


@table("window", [Window.DAY, Window.WEEK, Window.MONTH, Window.NONE])
@table("metric", [Metric.TOKENS, Metric.OUTPUT_TOKENS, Metric.WEIGHTED_TOKENS])
async def test_a_quota_is_returnable_until_all_its_leases_are_settled(
    limiter: Limiter, metric: Metric, window: Window
) -> None:
    quota = rule(metric, window, amount=100)
    first = await granted(limiter, request_for(quota, num_output_tokens=60))
    second = await granted(limiter, request_for(quota, num_output_tokens=40))

    for lease, num_output_tokens in ((first, 60), (second, 40)):
        denial = await denied(limiter, request_for(quota))
        assert (denial.is_returnable, denial.is_quota, denial.wait_s) == (True, False, 1.0)
        await limiter.settle(lease, ActualUsage(num_output_tokens=num_output_tokens))

    denial = await denied(limiter, request_for(quota))
    assert (denial.is_returnable, denial.is_quota) == (False, True)
    assert denial.wait_s != 1.0


async def test_a_quota_that_is_used_up_refuses_longer_than_a_returnable_one(
    limiter: Limiter,
) -> None:
    day, total = rule(amount=10), rule(window=Window.NONE, amount=10)
    done = await granted(limiter, request_for(day, num_output_tokens=10))
    await limiter.settle(done, ActualUsage(num_output_tokens=10))
    await granted(limiter, request_for(total, num_output_tokens=10))

    assert (await denied(limiter, request_for(total))).is_returnable
    denial = await denied(limiter, request_for(total, day))
    assert (denial.rule, denial.is_returnable) == (day, False)
    assert (await denied(limiter, request_for(total, num_output_tokens=11))).is_too_large
    assert (await denied(limiter, request_for(replace(total, amount=0)))).is_quota


async def test_an_id_cannot_be_leased_twice_at_a_time_and_needs_no_rules(limiter: Limiter) -> None:
    asked = request_for(rule())
    lease = await granted(limiter, asked)
    with pytest.raises(reservations.LeaseExists):
        await limiter.acquire(asked)
    await limiter.settle(lease, NO_USAGE)
    await granted(limiter, asked)

    lease = await granted(limiter, request_for())
    assert (await limiter.extend(lease, 1000)).num_output_tokens == 1000
    await limiter.settle(lease, ActualUsage())


async def test_each_end_user_uses_what_is_theirs_alone(limiter: Limiter, clock: FakeClock) -> None:
    for each in (rule(Metric.REQUESTS, MINUTE, 1), rule(amount=6), rule(Metric.REQUESTS), slots(1)):
        ann, bob = each.of_end_user("ann"), each.of_end_user("bob")
        lease = await granted(limiter, request_for(ann, num_input_tokens=5))
        await limiter.extend(lease, 99)
        amounts = await used(limiter, each, ann, bob)
        assert amounts == [0, 6 if each.metric is Metric.TOKENS else 1, 0]
        await granted(limiter, request_for(bob, num_input_tokens=3))
        await limiter.settle(lease, NO_USAGE)
        assert await used(limiter, ann) == [0]

    day = rule().of_end_user("ann")
    since_ms, _ = window_at(day, int(clock() * 1000))
    await limiter.restore([UsageBaseline(day, 100, since_ms)])
    await denied(limiter, request_for(day))
    await granted(limiter, request_for(replace(day, end_user="")))


async def test_in_memory_few_of_many_end_users_are_counted_the_latest_and_all_slots(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vinery_accounts.limits.memory._MAX_COUNTERS", 20)
    limiter = MemoryLimiter(clock=clock)
    project, each, each_slot = rule(amount=10**6), rule(amount=9), slots(1)
    first = each.of_end_user("first")
    held = await granted(limiter, request_for(each_slot.of_end_user("first")))
    for number in range(500):
        if not number % 5:
            await granted(limiter, request_for(first, num_output_tokens=0))
        name = f"user {number}"
        await granted(limiter, request_for(project, each.of_end_user(name)))
        assert len(limiter._counters) <= 22
        if number == 5:
            await granted(limiter, request_for(first, num_output_tokens=9))
    assert await used(limiter, project, first, *held.request.rules) == [500, 9, 1]
    newest = [each.of_end_user(f"user {number}") for number in (499, 498, 0)]
    assert await used(limiter, *newest) == [1, 1, 0]


async def test_weighted_tokens_count_by_their_weights(limiter: Limiter) -> None:
    budget = rule(Metric.WEIGHTED_TOKENS, Window.NONE, 1000)
    weights = Weights(uncached_milli=1000, cached_milli=125, output_milli=4000, image_milli=2500)
    asked = request_for(budget, num_input_tokens=100, num_output_tokens=10, weights=weights)
    lease = await granted(limiter, asked)
    assert await used(limiter, budget) == [140]
    await limiter.extend(lease, 5)
    assert await used(limiter, budget) == [160]

    spent = ActualUsage(100, 3, num_cached_tokens=60, num_image_tokens=8)
    await limiter.settle(lease, spent)

    # 32 x 1 + 60 x 0.125 + 8 x 2.5 + 3 x 4, and a part of a token is not left any more.
    assert await used(limiter, budget) == [72]


async def test_of_several_refusals_the_longest_counts(limiter: Limiter) -> None:
    minute = rule(Metric.TOKENS, MINUTE, 60)
    day = rule(Metric.TOKENS, Window.DAY, 100)
    small = rule(Metric.TOKENS, MINUTE, 10)
    lease = await granted(limiter, request_for(minute, day, num_input_tokens=59))
    # A reservation that may return soon refuses for less time than a bucket that has to refill.
    assert (await denied(limiter, request_for(minute, day, num_input_tokens=49))).rule == minute
    await limiter.settle(lease, ActualUsage(59, 1))
    assert (await denied(limiter, request_for(minute, day, num_input_tokens=49))).rule == day
    assert (await denied(limiter, request_for(minute, day, num_input_tokens=30))).rule == minute
    too_large = await denied(limiter, request_for(small, minute, day, num_input_tokens=49))
    assert too_large.rule == small
    assert too_large.is_too_large


async def test_a_changed_rule_keeps_what_is_used(limiter: Limiter) -> None:
    tokens = rule(amount=100)
    await granted(limiter, request_for(tokens, num_input_tokens=79))
    (raised,) = await limiter.levels([replace(tokens, amount=1000)])
    (lowered,) = await limiter.levels([replace(tokens, amount=50)])
    assert (raised.num_remaining, lowered.num_remaining) == (920, -30)
    await denied(limiter, request_for(replace(tokens, amount=50)))
    # Another rule of the same kind counts apart.
    assert await used(limiter, tokens, rule(amount=100)) == [80, 0]

    tokens = rule(amount=100, scope="key:1")
    running = await granted(limiter, request_for(tokens, num_input_tokens=59))
    moved = replace(tokens, scope="key:2")
    await granted(limiter, request_for(moved, num_input_tokens=19))
    await limiter.settle(running, ActualUsage(num_prompt_tokens=50))
    assert await used(limiter, moved) == [70]


async def test_an_answer_that_runs_obeys_an_amount_that_was_changed(limiter: Limiter) -> None:
    requests, tokens = rule(Metric.REQUESTS), rule(amount=1000)
    lease = await granted(limiter, request_for(requests, tokens, num_output_tokens=100))
    lowered = under(lease, requests, replace(tokens, amount=120))
    grants = [(await limiter.extend(lowered, 15)).num_output_tokens for _ in range(3)]
    assert grants == [15, 5, 0]

    tokens = rule(amount=100)
    lease = await granted(limiter, request_for(tokens, num_output_tokens=100))
    grant = await limiter.extend(under(lease, replace(tokens, amount=1000)), 500)
    assert (grant.num_output_tokens, grant.denial) == (500, None)
    await limiter.settle(lease, ActualUsage(num_output_tokens=600))
    assert await used(limiter, tokens) == [600]


async def test_an_old_answer_refills_no_lowered_bucket(limiter: Limiter, clock: FakeClock) -> None:
    before = rule(window=MINUTE, amount=600_000)
    after = replace(before, amount=60)
    runs, ends = [await granted(limiter, request_for(before)) for _ in range(2)]
    clock.pass_s(2.0)
    await granted(limiter, request_for(after, num_input_tokens=59))

    clock.pass_s(1.0)
    assert (await limiter.extend(under(runs, after), 5)).num_output_tokens == 1
    clock.pass_s(1.0)
    await limiter.settle(under(ends, after), ActualUsage(num_output_tokens=1))

    assert await used(limiter, after) == [59]


async def test_an_extension_grants_what_is_left_and_names_the_limit(limiter: Limiter) -> None:
    tokens, outputs = rule(Metric.TOKENS, amount=100), rule(Metric.OUTPUT_TOKENS, amount=50)
    lease = await granted(limiter, request_for(tokens, outputs, num_input_tokens=20))
    whole = await limiter.extend(lease, 40)
    part = await limiter.extend(lease, 40)
    none = await limiter.extend(lease, 40)
    assert (whole.num_output_tokens, whole.denial) == (40, None)
    assert (part.num_output_tokens, refusing_rule(part)) == (9, outputs)
    assert (none.num_output_tokens, refusing_rule(none)) == (0, outputs)
    assert await used(limiter, tokens, outputs) == [70, 50]

    # Input and requests do not bound an answer.
    full = rule(Metric.REQUESTS, amount=1), rule(Metric.INPUT_TOKENS, amount=10), slots(1)
    lease = await granted(limiter, request_for(*full, num_input_tokens=10))
    assert (await limiter.extend(lease, 1000)).num_output_tokens == 1000


async def test_a_shadow_rule_counts_as_if_enforced_but_refuses_none(limiter: Limiter) -> None:
    shadow = rule(Metric.REQUESTS, amount=1, is_shadow=True)
    tokens = rule(amount=100)
    first = await granted(limiter, request_for(shadow, tokens))
    second = await granted(limiter, request_for(shadow, tokens))
    assert first.shadow_denials == ()
    assert [denial.rule for denial in second.shadow_denials] == [shadow]
    # As an enforced rule, a shadow rule does not count refused requests.
    assert await used(limiter, shadow, tokens) == [1, 2]
    await limiter.settle(second, ActualUsage(0, 1))
    assert await used(limiter, shadow, tokens) == [1, 2]

    shadow = rule(amount=20, is_shadow=True)
    lease = await granted(limiter, request_for(shadow, num_input_tokens=9))
    grants = [await limiter.extend(lease, 8) for _ in range(3)]
    assert [grant.num_output_tokens for grant in grants] == [8, 8, 8]
    assert [len(grant.shadow_denials) for grant in grants] == [0, 1, 0]
    assert all(grant.denial is None for grant in grants)
    assert await used(limiter, shadow) == [20]
    await limiter.settle(lease, ActualUsage(9, 25))
    assert await used(limiter, shadow) == [20]


async def test_baselines_raise_what_is_used(limiter: Limiter, clock: FakeClock) -> None:
    today_ms, _ = window_at(rule(), int(clock() * 1000))
    day, other_day, budget = rule(amount=100), rule(amount=100), rule(window=Window.NONE)
    yesterday = rule(amount=100)
    await granted(limiter, request_for(other_day, num_input_tokens=79))
    days = [UsageBaseline(each, 70, since_ms=today_ms) for each in (day, other_day)]
    before = UsageBaseline(yesterday, 70, since_ms=today_ms - 86_400_000)
    await limiter.restore([*days, before, UsageBaseline(budget, 55)])
    assert await used(limiter, day, other_day, budget, yesterday) == [70, 80, 55, 0]

    bucket, slow, slot = rule(window=MINUTE, amount=600), rule(window=MINUTE), slots(1)
    read_at_ms = int(clock() * 1000)
    clock.pass_s(3.0)
    buckets = [UsageBaseline(each, 90, since_ms=read_at_ms) for each in (bucket, slow)]
    await limiter.restore([*buckets, UsageBaseline(slot, 1)])
    assert await used(limiter, bucket, slow, slot) == [60, 85, 0]
    denial = await denied(limiter, request_for(bucket, num_input_tokens=569))
    assert denial.wait_s == pytest.approx(3.0)
    clock.pass_s(3.0)
    await granted(limiter, request_for(bucket, num_input_tokens=569))

    bucket, refilled = rule(window=MINUTE, amount=600), rule(window=MINUTE, amount=600)
    await granted(limiter, request_for(bucket, num_input_tokens=9))
    now_ms = int(clock() * 1000)
    times_ms = ((bucket, now_ms), (refilled, now_ms - 60_000))
    await limiter.restore([UsageBaseline(each, 500, since_ms=at_ms) for each, at_ms in times_ms])
    assert await used(limiter, bucket, refilled) == [500, 0]
    await limiter.restore([UsageBaseline(bucket, 400, since_ms=now_ms)])
    assert await used(limiter, bucket) == [500]

    rounded_up = rule(window=MINUTE, amount=10)
    await granted(limiter, request_for(rounded_up, num_input_tokens=9))
    clock.pass_s(5.0)
    await limiter.restore([UsageBaseline(rounded_up, 10, since_ms=int(clock() * 1000))])
    denial = await denied(limiter, request_for(rounded_up, num_input_tokens=0))
    assert denial.wait_s == pytest.approx(1.0)


async def test_a_baseline_of_each_process_counts_once(fresh: Fresh, clock: FakeClock) -> None:
    first, second = fresh(2)
    bucket = rule(window=MINUTE, amount=600)
    baseline = UsageBaseline(bucket, 500, since_ms=int(clock() * 1000))

    await first.restore([baseline])
    clock.pass_s(1.0)
    await second.restore([baseline])

    assert await used(first, bucket) == [490]


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


# -- Time: windows begin, and buckets refill


async def test_a_day_begins_at_its_own_midnight(limiter: Limiter, clock: FakeClock) -> None:
    # 18:30 in India, of an offset of five hours and a half.
    clock.now_s = datetime(2027, 3, 10, 13, 0, tzinfo=UTC).timestamp()
    tokens = rule(amount=100, time_zone="Asia/Kolkata")
    await spend(limiter, 100, tokens)
    denial = await denied(limiter, request_for(tokens))
    assert denial.wait_s == 5.5 * 3600
    assert denial.is_quota
    clock.pass_s(5.5 * 3600 - 0.001)
    await denied(limiter, request_for(tokens))
    clock.pass_s(0.002)
    await granted(limiter, request_for(tokens))

    budget = rule(Metric.WEIGHTED_TOKENS, Window.NONE, 100)
    await spend(limiter, 100, budget)
    clock.pass_s(400 * 86_400)
    denial = await denied(limiter, request_for(budget))
    assert (denial.wait_s, denial.is_quota, denial.level.reset_s) == (None, True, None)


async def test_each_token_counts_in_its_own_window(limiter: Limiter, clock: FakeClock) -> None:
    tokens = at_midnight(clock)
    late = await granted(limiter, request_for(tokens, num_input_tokens=60))
    too_expensive = await granted(limiter, request_for(tokens, num_input_tokens=10))
    clock.pass_s(2.0)
    await granted(limiter, request_for(tokens, num_input_tokens=29))
    await limiter.settle(late, NO_USAGE)
    await limiter.settle(too_expensive, ActualUsage(50))
    assert await used(limiter, tokens) == [30]

    tokens = at_midnight(clock)
    lease = await granted(limiter, request_for(tokens, num_input_tokens=60))
    clock.pass_s(2.0)
    await limiter.extend(lease, 40)
    assert await used(limiter, tokens) == [40]
    # Of the 40 granted, 10 were generated: the last grants are unused.
    await limiter.settle(lease, ActualUsage(num_prompt_tokens=60, num_output_tokens=11))
    assert await used(limiter, tokens) == [10]

    tokens = at_midnight(clock)
    lease = await granted(limiter, request_for(tokens, num_input_tokens=60))
    clock.pass_s(2.0)
    await granted(limiter, request_for(tokens, num_input_tokens=29))
    await limiter.extend(lease, 10)
    await limiter.settle(lease, ActualUsage(num_prompt_tokens=20))
    assert await used(limiter, tokens) == [30]


@pytest.mark.parametrize(("window", "num_minutes"), [(Window.MINUTE, 1), (Window.HOUR, 60)])
async def test_a_clock_that_is_set_back_refills_nothing(
    limiter: Limiter, clock: FakeClock, window: Window, num_minutes: int
) -> None:
    rules = rule(window=window, amount=600), rule(amount=1000)
    await granted(limiter, request_for(*rules, num_input_tokens=299))

    clock.pass_s(-86_400.0)
    assert await used(limiter, *rules) == [300, 300]
    await granted(limiter, request_for(*rules, num_input_tokens=99))

    # The refill while the clock was ahead counts once: this takes one period at most.
    clock.pass_s(60.0 * num_minutes)
    assert await used(limiter, *rules) == [400, 400]
    clock.pass_s(10.0 * num_minutes)
    assert await used(limiter, *rules) == [300, 400]
    clock.pass_s(86_400.0 - 70.0 * num_minutes)
    assert await used(limiter, *rules) == [0, 400]


def at_midnight(clock: FakeClock) -> Rule:
    """A new limit of a day, when its last second begins, in UTC."""
    _, midnight_ms = window_at(day := rule(amount=100), int(clock() * 1000))
    clock.now_s = midnight_ms / 1000 - 1
    return day


async def test_a_bucket_gets_back_all_that_is_unused(limiter: Limiter) -> None:
    tokens = rule(window=MINUTE, amount=100_000)
    asked = [request_for(tokens, num_output_tokens=128) for _ in range(200)]
    for lease in [await granted(limiter, each) for each in asked]:
        await limiter.extend(lease, 64)
        await limiter.settle(lease, ActualUsage(num_output_tokens=100))
    assert await used(limiter, tokens) == [200 * 100]


# -- Leases keep their slots until they are settled, or until the process stops renewing


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
