"""Redis alone: one round trip, the server's clock, keys that end, scripts that get lost."""

import asyncio
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from tests.accounts.limits.builders import denied, granted, request_for, rule, slots, used
from tests.tables import table
from vinery_accounts.limits.redis import RedisLimiter, connect
from vinery_accounts.limits.reservations import NO_USAGE, ActualUsage, LimitsUnavailable
from vinery_accounts.limits.rules import Metric, Window

ALL_KINDS = (
    rule(Metric.TOKENS, Window.MINUTE, 200),
    rule(Metric.TOKENS, Window.DAY),
    rule(Metric.TOKENS, Window.WEEK, time_zone="Asia/Tokyo"),
    rule(Metric.TOKENS, Window.MONTH, time_zone="Asia/Tokyo"),
    rule(Metric.WEIGHTED_TOKENS, Window.NONE),
    slots(5),
)


@pytest.fixture
def prefix() -> str:
    return f"test:{uuid.uuid4().hex}:"


@pytest.fixture
def limiter(redis_client: Redis, prefix: str) -> RedisLimiter:
    return RedisLimiter(redis_client, prefix=prefix)


async def test_every_call_is_one_round_trip(
    limiter: RedisLimiter, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limiter.levels(ALL_KINDS)
    commands: list[str] = []
    execute = redis_client.execute_command

    async def counted(*words: Any, **options: Any) -> Any:
        commands.append(words[0])
        return await execute(*words, **options)

    lease = await granted(limiter, request_for(*ALL_KINDS))
    await limiter.extend(lease, 0)
    await limiter.renew([lease])
    await limiter.settle(lease, ActualUsage())
    monkeypatch.setattr(redis_client, "execute_command", counted)
    lease = await granted(limiter, request_for(*ALL_KINDS))
    await limiter.extend(lease, 1)
    await limiter.renew([lease] * 9)
    await limiter.renew([])
    await limiter.settle(lease, ActualUsage())
    await limiter.levels(ALL_KINDS)

    assert commands == ["EVALSHA"] * 5


async def test_lost_scripts_are_loaded_again(limiter: RedisLimiter, redis_client: Redis) -> None:
    tokens = rule()
    lease = await granted(limiter, request_for(tokens))
    await redis_client.script_flush()
    assert (await limiter.extend(lease, 7)).num_output_tokens == 7
    assert await used(limiter, tokens) == [8]


async def test_all_keys_have_the_prefix_and_an_end_but_budgets(
    redis_client: Redis, prefix: str
) -> None:
    begin_s = time.time()
    # A bucket that drains before the extension gets back a token less.
    limiter = RedisLimiter(redis_client, prefix=prefix, clock=lambda: begin_s)
    lease = await granted(limiter, request_for(*ALL_KINDS, num_input_tokens=60))
    await limiter.extend(lease, 1)
    ends = {key.decode(): await redis_client.pttl(key) async for key in redis_client.scan_iter()}
    ours = {key.removeprefix(prefix): ms for key, ms in ends.items() if key.startswith(prefix)}
    holders = {f"rule:{one.key}:held" for one in ALL_KINDS if one.may_be_returned}
    assert set(ours) == {f"lease:{lease.id}", *(f"rule:{one.key}" for one in ALL_KINDS), *holders}
    without_end = [key for key, ms in ours.items() if ms < 0]
    assert without_end == [f"rule:{ALL_KINDS[-2].key}"]
    day = next(one for one in ALL_KINDS if one.window is Window.DAY)
    assert ours[f"rule:{day.key}"] <= 2 * 86_400_000 + 60_000
    # Full again in 19 s, and a margin of a minute.
    assert ours[f"rule:{ALL_KINDS[0].key}"] <= 80_000
    # Nothing is left of a request that did not happen.
    await limiter.settle(lease, NO_USAGE)
    assert [key async for key in redis_client.scan_iter(f"{prefix}*")] == []


@table("by_s", [-86_000.0, -3.0, 3.0, 86_000.0])
async def test_clocks_of_web_processes_may_differ_by_a_day(
    limiter: RedisLimiter, redis_client: Redis, prefix: str, by_s: float
) -> None:
    rules = rule(amount=100), rule(window=Window.MINUTE, amount=1), rule(window=Window.WEEK)
    await granted(limiter, request_for(*rules))
    wrong = RedisLimiter(redis_client, prefix=prefix)
    wrong._caller_ms = lambda: int((time.time() + by_s) * 1000)  # type: ignore[method-assign]

    lease = await granted(wrong, request_for(rules[0], rules[2], num_input_tokens=9))
    assert await used(limiter, rules[0], rules[2]) == [11, 11]
    assert await used(wrong, rules[0], rules[2]) == [11, 11]
    await denied(wrong, request_for(*rules))
    await wrong.settle(lease, ActualUsage(9, 0))

    assert await used(limiter, rules[0], rules[2]) == [10, 10]


async def test_buckets_and_leases_obey_the_servers_clock(redis_client: Redis, prefix: str) -> None:
    limiter = RedisLimiter(redis_client, prefix=prefix, lease_ttl_s=0.05)
    # A hundred a millisecond.
    bucket, slot = rule(window=Window.MINUTE, amount=6_000_000), slots(1)
    await granted(limiter, request_for(bucket, slot, num_input_tokens=5_999))
    before = time.monotonic()
    while await used(limiter, bucket, slot) != [0, 0]:
        assert time.monotonic() - before < 60
        await asyncio.sleep(0.005)
    await granted(limiter, request_for(slot))


async def test_what_may_have_been_done_is_not_sent_again(
    limiter: RedisLimiter, redis_url: str, prefix: str
) -> None:
    tokens = rule()
    await granted(limiter, request_for(tokens))
    address = urlsplit(redis_url)
    num_sent = 0

    async def lose_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass everything on until the first script, and lose the answer of the script."""
        nonlocal num_sent
        upstream_reader, upstream = await asyncio.open_connection(address.hostname, address.port)
        while sent := await reader.read(65_536):
            upstream.write(sent)
            answer = await upstream_reader.read(65_536)
            if b"EVALSHA" in sent:
                num_sent += 1
                break
            writer.write(answer)
        upstream.close()
        writer.close()

    async with await asyncio.start_server(lose_answers, "127.0.0.1", 0) as lossy:
        port = lossy.sockets[0].getsockname()[1]
        client = connect(f"redis://127.0.0.1:{port}{address.path}", deadline_s=60.0)
        with pytest.raises(LimitsUnavailable):
            await RedisLimiter(client, prefix=prefix).acquire(request_for(tokens))
        await client.aclose()

    assert num_sent == 1
    assert await used(limiter, tokens) == [2]
