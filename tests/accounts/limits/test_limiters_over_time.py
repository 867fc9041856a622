"""What time does to limits: windows begin, and buckets refill."""

from datetime import UTC, datetime

import pytest

from tests.accounts.limits.builders import denied, granted, request_for, rule, spend, used
from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery_accounts.limits.reservations import NO_USAGE, ActualUsage, Lease, Limiter
from vinery_accounts.limits.rules import Metric, Rule, Window
from vinery_accounts.limits.windows import window_at

MINUTE = Window.MINUTE


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
    # Of the 40 granted, 10 were generated: the last grants are the unused ones.
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

    # What had refilled while the clock was ahead counts once, which takes one period at most.
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


async def run_on(limiter: Limiter, clock: FakeClock, seconds: float, *leases: Lease) -> None:
    """Time passes, and the leases are renewed meanwhile."""
    for _ in range(10):
        clock.pass_s(seconds / 10)
        await limiter.renew(leases)


async def test_a_bucket_gets_back_only_what_is_there(limiter: Limiter, clock: FakeClock) -> None:
    tokens = rule(window=MINUTE, amount=1000)
    idle = await granted(limiter, request_for(tokens, num_output_tokens=500))
    await run_on(limiter, clock, 60.0, idle)
    busy = await granted(limiter, request_for(tokens, num_input_tokens=999))
    await limiter.settle(busy, ActualUsage(999, 1))
    await limiter.settle(idle, NO_USAGE)
    assert await used(limiter, tokens) == [1000]

    tokens = rule(window=MINUTE, amount=1000)
    idle = await granted(limiter, request_for(tokens, num_output_tokens=500))
    clock.pass_s(12.0)
    await granted(limiter, request_for(tokens, num_input_tokens=699))
    await limiter.settle(idle, NO_USAGE)
    assert await used(limiter, tokens) == [700]

    tokens = rule(window=MINUTE, amount=1000)
    both = [await granted(limiter, request_for(tokens, num_output_tokens=300)) for _ in range(2)]
    await run_on(limiter, clock, 30.0, *both)
    await granted(limiter, request_for(tokens, num_input_tokens=899))
    assert await used(limiter, tokens) == [1000]
    for lease in both:
        await limiter.settle(lease, NO_USAGE)
    assert await used(limiter, tokens) == [900]

    tokens = rule(window=MINUTE, amount=100_000)
    asked = [request_for(tokens, num_output_tokens=128) for _ in range(200)]
    for lease in [await granted(limiter, each) for each in asked]:
        await limiter.extend(lease, 64)
        await limiter.settle(lease, ActualUsage(num_output_tokens=100))
    assert await used(limiter, tokens) == [200 * 100]


@table(
    "num_used_at_end, num_used",
    # The last extension is there yet, and what was granted a minute before is not.
    [(160, 460), (100, 400), (60, 400), (0, 400)],
)
async def test_what_was_granted_last_is_what_a_bucket_gets_back(
    limiter: Limiter, clock: FakeClock, num_used_at_end: int, num_used: int
) -> None:
    tokens = rule(window=MINUTE, amount=1000)
    lease = await granted(limiter, request_for(tokens, num_output_tokens=50))
    for _ in range(5):
        await limiter.extend(lease, 10)
    await run_on(limiter, clock, 60.0, lease)
    await granted(limiter, request_for(tokens, num_input_tokens=399))
    await limiter.extend(lease, 100)

    await limiter.settle(lease, ActualUsage(num_output_tokens=num_used_at_end))

    assert await used(limiter, tokens) == [num_used]
