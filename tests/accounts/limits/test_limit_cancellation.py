"""A request that is cancelled while it talks to Redis ends at once, whenever that happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.accounts.limits.builders import granted, request_for, rule
from tests.accounts.limits.conftest import MakeFailover
from vinery_accounts.limits.failover import UnavailablePolicy
from vinery_accounts.limits.redis import RedisLimiter, connect
from vinery_accounts.limits.reservations import NO_USAGE

# A call is over after fewer passes of the event loop, even with a new connection.
NUM_PASSES = 40


async def loses_cancellation(call: Callable[[], Awaitable[object]], num_passes: int) -> bool:
    """Whether a task goes on that is cancelled after so many passes of the event loop."""
    task = asyncio.ensure_future(call())
    for _ in range(num_passes):
        await asyncio.sleep(0)
    was_running = task.cancel()
    await asyncio.wait([task])
    return was_running and not task.cancelled()


@pytest.mark.parametrize("is_connected", [True, False])
async def test_no_cancellation_is_lost(
    redis_url: str, failover: MakeFailover, is_connected: bool
) -> None:
    tokens = rule(amount=1_000_000)
    lost = []
    for num_passes in range(NUM_PASSES):
        for name in ("acquire", "extend", "settle", "levels"):
            client = connect(redis_url)
            limiter = failover(RedisLimiter(client), UnavailablePolicy.REFUSE)
            lease = await granted(limiter, request_for(tokens))
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "acquire": lambda limiter=limiter: limiter.acquire(request_for(tokens)),
                "extend": lambda limiter=limiter, lease=lease: limiter.extend(lease, 1),
                "settle": lambda limiter=limiter, lease=lease: limiter.settle(lease, NO_USAGE),
                "levels": lambda limiter=limiter: limiter.levels([tokens]),
            }
            if not is_connected:
                await client.connection_pool.disconnect()
            if await loses_cancellation(calls[name], num_passes):
                lost.append((name, num_passes))
            await limiter.close()
            await client.aclose()

    assert not lost
