"""A Redis server ends, and starts again; and a request that is cancelled while it talks to one ends
at once, whenever that happens."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.accounts.limits.builders import granted, request_for, rule, until
from tests.accounts.limits.conftest import MakeFailover
from tests.own_redis import OwnRedis
from tests.tables import table
from vinery_accounts.limits.failover import UnavailablePolicy
from vinery_accounts.limits.redis import RedisLimiter, connect
from vinery_accounts.limits.reservations import NO_USAGE, ActualUsage, LimitsUnavailable


async def test_a_redis_server_that_is_killed_and_started_again_counts_again(
    tmp_path: Path, redis_program: str, failover: MakeFailover
) -> None:
    with OwnRedis(redis_program, tmp_path) as server:
        client = connect(server.url)
        limiter = failover(RedisLimiter(client), UnavailablePolicy.ALLOW, deadline_s=1.0)
        tokens = rule(amount=100)
        lease = await granted(limiter, request_for(tokens, num_input_tokens=9))

        server.stop()
        meanwhile = await granted(limiter, request_for(tokens))
        assert meanwhile.is_uncounted
        assert limiter.state.is_degraded
        assert (await limiter.extend(lease, 9)).num_output_tokens == 9
        await limiter.settle(lease, ActualUsage(9, 9))

        server.start()
        await until(lambda: limiter.is_answering)
        limiter.resume(limiter.num_outages)
        assert not (await granted(limiter, request_for(tokens))).is_uncounted
        await limiter.settle(meanwhile, ActualUsage(0, 1))
        await client.aclose()


@pytest.mark.parametrize("is_seen_closing", [True, False])
async def test_the_restart_of_an_idle_redis_server_is_noticed_once(
    tmp_path: Path, redis_program: str, failover: MakeFailover, is_seen_closing: bool
) -> None:
    tokens = rule(amount=100)
    with OwnRedis(redis_program, tmp_path) as server:
        client = connect(server.url)
        limiter = failover(RedisLimiter(client), UnavailablePolicy.REFUSE)
        # As many connections as there are calls at once, all of which lie idle then.
        await asyncio.gather(*(granted(limiter, request_for(tokens)) for _ in range(8)))
        connections = list(client.connection_pool._available_connections)
        server.stop()
        server.start()
        if is_seen_closing:
            for connection in connections:
                await until(connection._reader.at_eof)

        with pytest.raises(LimitsUnavailable):
            await limiter.acquire(request_for(tokens))

        await until(lambda: limiter.is_answering)
        limiter.resume(limiter.num_outages)
        await asyncio.gather(*(granted(limiter, request_for(tokens)) for _ in range(8)))

        assert limiter.num_outages == 1
        assert not limiter.state.is_degraded
        await client.aclose()


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


@table("is_connected", [True, False])
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
