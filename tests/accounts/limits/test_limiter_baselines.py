"""Baselines restore what was used."""

from __future__ import annotations

import pytest

from tests.accounts.limits.builders import denied, granted, request_for, rule, slots, used
from tests.accounts.limits.conftest import Fresh
from tests.fakes.clock import FakeClock
from vinery_accounts.limits.reservations import Limiter, UsageBaseline
from vinery_accounts.limits.rules import Window
from vinery_accounts.limits.windows import window_at

MINUTE = Window.MINUTE


async def test_a_baseline_raises_what_is_used_and_never_lowers_it(
    limiter: Limiter, clock: FakeClock
) -> None:
    today_ms, _ = window_at(rule(), int(clock() * 1000))
    day, other_day, budget = rule(amount=100), rule(amount=100), rule(window=Window.NONE)
    await granted(limiter, request_for(other_day, num_input_tokens=79))

    await limiter.restore(
        [
            UsageBaseline(day, 70, since_ms=today_ms),
            UsageBaseline(other_day, 70, since_ms=today_ms),
            UsageBaseline(budget, 55),
        ]
    )

    assert await used(limiter, day, other_day, budget) == [70, 80, 55]


async def test_a_bucket_without_a_record_continues_from_its_baseline(
    limiter: Limiter, clock: FakeClock
) -> None:
    bucket, slow, slot = rule(window=MINUTE, amount=600), rule(window=MINUTE), slots(1)
    read_at_ms = int(clock() * 1000)
    clock.pass_s(3.0)

    await limiter.restore(
        [UsageBaseline(each, 90, since_ms=read_at_ms) for each in (bucket, slow)]
        + [UsageBaseline(slot, 1)]
    )

    assert await used(limiter, bucket, slow, slot) == [60, 85, 0]
    denial = await denied(limiter, request_for(bucket, num_input_tokens=569))
    assert denial.wait_s == pytest.approx(3.0)
    clock.pass_s(3.0)
    await granted(limiter, request_for(bucket, num_input_tokens=569))


async def test_a_bucket_with_a_record_keeps_it(limiter: Limiter, clock: FakeClock) -> None:
    bucket, refilled = rule(window=MINUTE, amount=600), rule(window=MINUTE, amount=600)
    await granted(limiter, request_for(bucket, num_input_tokens=9))

    now_ms = int(clock() * 1000)
    await limiter.restore(
        [
            UsageBaseline(bucket, 500, since_ms=now_ms),
            UsageBaseline(refilled, 500, since_ms=now_ms - 60_000),
        ]
    )

    assert await used(limiter, bucket, refilled) == [10, 0]


async def test_the_baseline_of_a_bucket_is_taken_over_once(fresh: Fresh, clock: FakeClock) -> None:
    first, second = fresh(2)
    bucket = rule(window=MINUTE, amount=600)
    baseline = UsageBaseline(bucket, 500, since_ms=int(clock() * 1000))

    await first.restore([baseline])
    clock.pass_s(1.0)
    await second.restore([baseline])

    assert await used(first, bucket) == [490]


async def test_the_baseline_of_another_day_has_no_effect(
    limiter: Limiter, clock: FakeClock
) -> None:
    today_ms, _ = window_at(rule(), int(clock() * 1000))
    day = rule(amount=100)

    await limiter.restore([UsageBaseline(day, 70, since_ms=today_ms - 86_400_000)])

    assert await used(limiter, day) == [0]
