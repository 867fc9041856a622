"""Redis becomes unavailable, and available again. A request that is cancelled during a call to
Redis ends at once, at any moment."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.accounts.limits.builders import granted, request_for, rule, slots, used
from tests.accounts.limits.conftest import MakeFailover
from tests.conftest import until_in_loop as until
from tests.fakes.clock import FakeClock
from tests.fakes.limiter import FakeLimiter
from tests.own_redis import OwnRedis
from tests.tables import table
from vinery_accounts.limits import reservations
from vinery_accounts.limits.redis import RedisLimiter, connect
from vinery_accounts.limits.reservations import (
    NO_USAGE,
    ActualUsage,
    LimitsUnavailable,
    UsageBaseline,
)
from vinery_accounts.limits.rules import Rule
from vinery_accounts.limits.service import FailoverLimiter, UnavailablePolicy


@pytest.fixture
def store(clock: FakeClock) -> FakeLimiter:
    return FakeLimiter(clock)


@pytest.fixture
def refusing(store: FakeLimiter, failover: MakeFailover) -> FailoverLimiter:
    return failover(store, UnavailablePolicy.REFUSE)


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
    with contextlib.suppress(LimitsUnavailable):
        await limiter.levels([rule()])
    assert limiter.state.is_degraded


async def test_baselines_from_before_an_outage_do_not_end_it(refusing: FailoverLimiter) -> None:
    for _ in range(2):
        num_outages_when_read = refusing.num_outages
        store_of(refusing).is_unavailable = True
        with contextlib.suppress(LimitsUnavailable):
            await refusing.restore([])
        await notice(refusing)
        refusing.resume(refusing.num_outages)
        assert refusing.state.is_degraded  # Redis does not answer yet
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
    # No deadline of a single call: the store answers none.
    limiter = failover(store, UnavailablePolicy.REFUSE, deadline_s=3600.0)
    async with asyncio.timeout(60):
        with pytest.raises(LimitsUnavailable):
            await limiter.acquire(request_for(rule()))

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
    assert not (await granted(refusing, request_for(rule()))).is_uncounted
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

    # Uncounted requests stay uncounted. Requests that the store had counted are settled there.
    await limiter.settle(before, ActualUsage(0, 101))
    await become_available(limiter)
    assert await used(limiter, tokens) == [101]
    assert (await limiter.extend(leases[0], 100)).num_output_tokens == 100
    await limiter.renew(leases)
    assert not limiter.state.is_degraded


@table(
    "max_waiting, waiting, left",
    # The reservations of two leases count as used, and their slots end with the leases.
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


class LosesACancellation(FakeLimiter):
    """Reports a cancelled attempt to connect as a failure, as the client of Redis may."""

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


# -- Servers that end and start again


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
    """Whether a task goes on after its cancellation at this pass of the event loop."""
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
