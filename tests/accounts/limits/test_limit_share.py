"""Processes without a store in common have a share of each limit."""

from __future__ import annotations

import pytest

from tests.accounts.limits.builders import denied, granted, request_for, rule, slots, used
from tests.fakes.clock import FakeClock
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.reservations import Lease, UsageBaseline
from vinery_accounts.limits.rules import Metric, Window


async def test_shares_together_are_no_more_than_the_whole(clock: FakeClock) -> None:
    tokens = rule(amount=103)
    processes = [MemoryLimiter(4, clock=clock) for _ in range(4)]
    num_granted = 0

    for process in processes:
        while isinstance(await process.acquire(request_for(tokens)), Lease):
            num_granted += 1

    assert num_granted == 100


async def test_a_share_is_at_least_one_unless_the_amount_is_zero(clock: FakeClock) -> None:
    process = MemoryLimiter(4, clock=clock)

    await granted(process, request_for(slots(2)))
    await denied(process, request_for(slots(0)))


async def test_baselines_are_shared_too(clock: FakeClock) -> None:
    process = MemoryLimiter(4, clock=clock)
    budget = rule(amount=100)
    (level,) = await process.levels([budget])
    today_ms = int((clock() + level.reset_s - 86_400) * 1000)  # type: ignore[operator]

    await process.restore([UsageBaseline(budget, 41, since_ms=today_ms)])

    assert await used(process, budget) == [11]


async def test_a_process_that_receives_an_update_keeps_what_others_leave_of_its_share(
    clock: FakeClock,
) -> None:
    process = MemoryLimiter(2, clock=clock)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)
    await granted(process, request_for(quota, num_input_tokens=9))

    for used_by_all, used_here in ((60, 10), (50, 10), (80, 30), (120, 50)):
        await process.restore([UsageBaseline(quota, used_by_all, is_update=True)])
        assert await used(process, quota) == [used_here]


def test_shares_between_no_processes_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        MemoryLimiter(0)
