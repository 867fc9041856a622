"""The store of the limits goes away, and comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from accounts.limits.failover import FailoverLimiter, UnavailablePolicy
from accounts.limits.memory import MemoryLimiter
from accounts.limits.redis import RedisLimiter, connect
from accounts.limits.reservations import (
    NO_USAGE,
    ActualUsage,
    Denial,
    Grant,
    Lease,
    Level,
    Limiter,
    LimitsUnavailable,
    ReservationRequest,
    UsageBaseline,
)
from accounts.limits.rules import Metric, Rule, Window
from accounts.limits.share import ShareLimiter
from tests.accounts.limits.builders import claim, denied, granted, places, rule, under, used
from tests.fakes.clock import FakeClock
from tests.own_redis import OwnRedis


class Store:
    """A limiter that can go away: it then fails at once, or never answers."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.inner = MemoryLimiter(clock=clock)
        self.is_away = False
        self.hangs = False
        self.loses_answers = False
        self.num_calls = 0

    def forget(self) -> None:
        """As a server does that is started again."""
        self.inner = MemoryLimiter(clock=self._clock)

    async def answer(self) -> None:
        self.num_calls += 1
        await asyncio.sleep(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.is_away:
            raise LimitsUnavailable("gone")

    async def acquire(self, claim: ReservationRequest) -> Lease | Denial:
        await self.answer()
        answer = await self.inner.acquire(claim)
        if self.loses_answers:
            await asyncio.Event().wait()
        return answer

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        await self.answer()
        return await self.inner.extend(lease, num_output_tokens)

    async def settle(self, lease: Lease, spent: ActualUsage) -> None:
        await self.answer()
        await self.inner.settle(lease, spent)

    async def renew(self, leases: Sequence[Lease]) -> None:
        await self.answer()
        await self.inner.renew(leases)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        await self.answer()
        return await self.inner.levels(rules)

    async def restore(self, floors: Sequence[UsageBaseline]) -> None:
        await self.answer()
        await self.inner.restore(floors)


Guard = Callable[..., FailoverLimiter]


@pytest.fixture
def store(clock: FakeClock) -> Store:
    return Store(clock)


@pytest.fixture
async def guard(clock: FakeClock) -> AsyncIterator[Guard]:
    """Puts a guard before a store, and ends it afterwards."""
    made: list[FailoverLimiter] = []

    def make(store: Limiter, when_away: UnavailablePolicy, **more: float) -> FailoverLimiter:
        local = ShareLimiter(MemoryLimiter(clock=clock), 4)
        waits = {"deadline_s": 5.0, "probe_interval_s": 0.005, **more}
        made.append(FailoverLimiter(store, local, when_away, clock=clock, **waits))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for guarded in made:
        await guarded.close()


async def until(condition: Callable[[], bool]) -> None:
    """Fails when it does not come true."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def come_back(store: Store, guarded: FailoverLimiter) -> None:
    await answer_again(store, guarded)
    guarded.resume(guarded.num_outages)
    assert not guarded.state.is_degraded


async def answer_again(store: Store, guarded: FailoverLimiter) -> None:
    store.is_away = store.hangs = False
    await until(lambda: guarded.is_answering and not guarded.state.num_waiting)


async def notice(guarded: FailoverLimiter) -> None:
    """Everybody knows that the store is away."""
    with contextlib.suppress(LimitsUnavailable):
        await guarded.levels([rule()])
    assert guarded.state.is_degraded


# -- Away -------------------------------------------------------------------------------------


async def test_while_it_answers_nothing_is_different(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    tokens = rule(amount=100)

    lease = await granted(guarded, claim(tokens, num_input_tokens=9))
    assert (await guarded.extend(lease, 1000)).num_output_tokens == 90
    await guarded.renew([lease])
    await denied(guarded, claim(tokens))
    await guarded.settle(lease, ActualUsage(9, 1))

    assert await used(guarded, tokens) == [10]
    assert not guarded.state.is_degraded
    assert not lease.is_local


async def test_a_store_that_hangs_is_away_after_the_deadline(
    store: Store, guard: Guard, clock: FakeClock
) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE, deadline_s=0.01)
    store.hangs = True

    with pytest.raises(LimitsUnavailable):
        await guarded.acquire(claim(rule()))

    assert guarded.state.is_degraded
    assert guarded.state.unavailable_since_s == clock()


async def test_nobody_waits_for_a_store_that_is_known_to_be_away(
    store: Store, guard: Guard
) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE, probe_interval_s=3600.0)
    store.is_away = True
    num_calls = 1

    for _ in range(10):
        with pytest.raises(LimitsUnavailable):
            await guarded.acquire(claim(rule()))

    assert store.num_calls == num_calls


async def test_refuse_lets_nothing_run_that_is_not_counted(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    tokens = rule()
    lease = await granted(guarded, claim(tokens))
    store.is_away = True

    assert (await guarded.extend(lease, 9)).num_output_tokens == 0
    with pytest.raises(LimitsUnavailable):
        await guarded.acquire(claim(tokens))
    with pytest.raises(LimitsUnavailable):
        await guarded.levels([tokens])
    with pytest.raises(LimitsUnavailable):
        await guarded.restore([UsageBaseline(tokens, 1)])


async def test_allow_lets_everything_run_and_says_how_much_was_not_counted(
    store: Store, guard: Guard
) -> None:
    guarded = guard(store, UnavailablePolicy.ALLOW)
    tokens = rule(amount=10)
    before = await granted(guarded, claim(tokens))
    store.is_away = True

    leases = [await granted(guarded, claim(tokens, num_input_tokens=1000)) for _ in range(5)]
    grants = [await guarded.extend(lease, 100) for lease in (before, *leases)]
    for lease in leases:
        await guarded.settle(lease, ActualUsage(1000))

    assert all(lease.is_uncounted for lease in leases)
    assert [grant.num_output_tokens for grant in grants] == [100] * 6
    assert guarded.state.num_uncounted == 5
    with pytest.raises(LimitsUnavailable):
        await guarded.levels([tokens])


async def test_share_counts_a_share_in_this_process(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.SHARE)
    tokens, place = rule(amount=100), places(8)
    store.is_away = True

    lease = await granted(guarded, claim(tokens, place, num_input_tokens=19))
    assert lease.is_local
    assert (await guarded.extend(lease, 10)).num_output_tokens == 5
    await granted(guarded, claim(place))
    await denied(guarded, claim(place))
    levels = await guarded.levels([tokens])
    assert [(level.num_used, level.num_remaining) for level in levels] == [(25, 0)]
    await guarded.settle(lease, ActualUsage(19, 1))

    assert await used(guarded, tokens) == [20]


@pytest.mark.parametrize("is_told_before", [True, False])
async def test_a_share_of_a_quota_begins_with_a_share_of_what_was_used(
    store: Store, guard: Guard, is_told_before: bool
) -> None:
    guarded = guard(store, UnavailablePolicy.SHARE)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)
    if is_told_before:
        await guarded.restore([UsageBaseline(quota, 80)])
    store.is_away = True
    if not is_told_before:
        await guarded.levels([quota])
        with pytest.raises(LimitsUnavailable):
            await guarded.restore([UsageBaseline(quota, 80)])

    # Of four processes each has 25, and 20 of them were used.
    await granted(guarded, claim(quota, num_input_tokens=4))
    await denied(guarded, claim(quota))


async def test_answers_that_are_half_done_go_on_within_the_share(
    store: Store, guard: Guard
) -> None:
    guarded = guard(store, UnavailablePolicy.SHARE)
    tokens, requests, place = rule(amount=100), rule(amount=100), places(1)
    lease = await granted(guarded, claim(tokens, requests, place, num_input_tokens=49))
    store.is_away = True

    grants = [(await guarded.extend(lease, 10)).num_output_tokens for _ in range(4)]
    assert grants == [10, 10, 5, 0]
    await guarded.settle(lease, ActualUsage(49, 26))

    await come_back(store, guarded)
    # The store knew of 50, and learns that it were 75.
    assert await used(guarded, tokens, place) == [75, 0]


async def test_the_share_is_one_of_the_amount_as_it_is_now(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.SHARE)
    tokens, place = rule(amount=100), places(4)
    of_store = await granted(guarded, claim(place, tokens))
    store.is_away = True
    of_share = await granted(guarded, claim(tokens))
    raised = replace(tokens, amount=200)

    assert (await guarded.extend(of_store, 20)).num_output_tokens == 20
    assert (await guarded.extend(of_share, 20)).num_output_tokens == 4
    assert (await guarded.extend(under(of_share, raised), 15)).num_output_tokens == 15
    assert (await guarded.extend(under(of_store, place, raised), 15)).num_output_tokens == 10


# -- And back ---------------------------------------------------------------------------------


async def test_it_is_back_by_itself(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    store.is_away = True
    with pytest.raises(LimitsUnavailable):
        await guarded.acquire(claim(rule()))

    await come_back(store, guarded)

    lease = await granted(guarded, claim(rule()))
    assert not lease.is_local
    assert guarded.state.unavailable_since_s is None


@pytest.mark.parametrize("when_away", UnavailablePolicy)
async def test_a_store_that_has_lost_its_memory_counts_again_when_it_was_told_what_was_used(
    store: Store, guard: Guard, when_away: UnavailablePolicy
) -> None:
    guarded = guard(store, when_away)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)
    await guarded.restore([UsageBaseline(quota, 100)])
    await denied(guarded, claim(quota))
    store.is_away = True
    await notice(guarded)

    store.forget()
    await answer_again(store, guarded)

    assert guarded.state.is_degraded
    match when_away:
        case UnavailablePolicy.REFUSE:
            with pytest.raises(LimitsUnavailable):
                await guarded.acquire(claim(quota))
        case UnavailablePolicy.ALLOW:
            assert (await granted(guarded, claim(quota))).is_uncounted
        case UnavailablePolicy.SHARE:
            await denied(guarded, claim(quota))
    await guarded.restore([UsageBaseline(quota, 100)])
    guarded.resume(guarded.num_outages)
    await denied(guarded, claim(quota))
    assert not guarded.state.is_degraded


async def test_answers_get_no_more_of_a_store_that_knows_nothing_yet(
    store: Store, guard: Guard
) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    lease = await granted(guarded, claim(rule()))
    store.is_away = True
    await notice(guarded)

    await answer_again(store, guarded)

    assert (await guarded.extend(lease, 9)).num_output_tokens == 0
    guarded.resume(guarded.num_outages)
    assert (await guarded.extend(lease, 9)).num_output_tokens == 9


async def test_what_was_read_before_another_outage_does_not_bring_it_back(
    store: Store, guard: Guard
) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    for _ in range(2):
        num_outages_when_read = guarded.num_outages
        store.is_away = True
        with contextlib.suppress(LimitsUnavailable):
            await guarded.restore([])
        await notice(guarded)
        await answer_again(store, guarded)

        guarded.resume(num_outages_when_read)
        assert guarded.state.is_degraded


async def test_a_store_that_does_not_answer_is_not_brought_back(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    store.is_away = True
    await notice(guarded)

    guarded.resume(guarded.num_outages)

    assert guarded.state.is_degraded


async def test_settlements_wait_until_it_is_back(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    tokens, place = rule(amount=100), places(9)
    leases = [await granted(guarded, claim(tokens, place, num_input_tokens=9)) for _ in range(5)]
    store.is_away = True
    for lease in leases:
        await guarded.settle(lease, ActualUsage(9, 0))
    assert guarded.state.num_waiting == 5

    await come_back(store, guarded)

    assert await used(guarded, tokens, place) == [45, 0]


async def test_no_more_settlements_wait_than_there_is_room_for(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE, max_waiting=3)
    tokens, place = rule(amount=100), places(9)
    leases = [await granted(guarded, claim(tokens, place, num_input_tokens=9)) for _ in range(5)]
    store.is_away = True
    for lease in leases:
        await guarded.settle(lease, NO_USAGE)

    assert (guarded.state.num_waiting, guarded.state.num_dropped) == (3, 2)
    await come_back(store, guarded)

    # What two of them had reserved counts as used, and their places end with their leases.
    assert await used(guarded, tokens, place) == [20, 2]


async def test_a_reservation_whose_answer_is_lost_is_taken_back(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE, deadline_s=0.01)
    tokens, place = rule(), places(1)
    store.loses_answers = True

    with pytest.raises(LimitsUnavailable):
        await guarded.acquire(claim(tokens, place))
    assert await used(store.inner, tokens, place) == [1, 1]
    await come_back(store, guarded)

    assert await used(store.inner, tokens, place) == [0, 0]


async def test_a_caller_who_leaves_in_the_middle_leaves_nothing_behind(
    store: Store, guard: Guard
) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    tokens, place = rule(), places(1)
    store.loses_answers = True
    caller = asyncio.create_task(guarded.acquire(claim(tokens, place)))
    while await used(store.inner, place) == [0]:  # noqa: ASYNC110
        await asyncio.sleep(0)

    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not guarded.state.is_degraded
    await come_back(store, guarded)

    assert await used(store.inner, tokens, place) == [0, 0]


async def test_a_settlement_that_is_interrupted_still_arrives(store: Store, guard: Guard) -> None:
    guarded = guard(store, UnavailablePolicy.REFUSE)
    tokens, place = rule(), places(1)
    lease = await granted(guarded, claim(tokens, place))
    store.hangs = True
    settling = asyncio.create_task(guarded.settle(lease, NO_USAGE))
    await asyncio.sleep(0.01)

    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    await come_back(store, guarded)

    assert await used(store.inner, tokens, place) == [0, 0]


async def test_a_store_that_has_lost_a_lease_is_as_good_as_away(store: Store, guard: Guard) -> None:
    tokens = rule(amount=100)
    for when_away, granted_on in (
        (UnavailablePolicy.REFUSE, 0),
        (UnavailablePolicy.ALLOW, 9),
        (UnavailablePolicy.SHARE, 9),
    ):
        guarded = guard(store, when_away)
        lease = await granted(guarded, claim(tokens))
        await store.inner.settle(lease, NO_USAGE)

        assert (await guarded.extend(lease, 9)).num_output_tokens == granted_on


async def test_a_share_begins_with_the_outage_however_often_the_store_was_told(
    store: Store, guard: Guard
) -> None:
    guarded = guard(store, UnavailablePolicy.SHARE)
    quota = rule(Metric.WEIGHTED_TOKENS, Window.NONE, amount=100)

    await guarded.restore([UsageBaseline(quota, 60, is_update=True)])
    store.is_away = True

    assert await used(guarded, quota) == [15]


# -- A real server -------------------------------------------------------------------------------


async def test_a_redis_server_that_is_killed_and_started_again(
    tmp_path: Path, redis_program: str, guard: Guard
) -> None:
    with OwnRedis(redis_program, tmp_path) as server:
        client = connect(server.url)
        guarded = guard(RedisLimiter(client), UnavailablePolicy.SHARE, deadline_s=1.0)
        tokens = rule(amount=100)
        lease = await granted(guarded, claim(tokens, num_input_tokens=9))

        server.stop()
        meanwhile = await granted(guarded, claim(tokens))
        assert meanwhile.is_local
        assert guarded.state.is_degraded
        assert (await guarded.extend(lease, 9)).num_output_tokens == 9
        await guarded.settle(lease, ActualUsage(9, 9))

        server.start()
        await until(lambda: guarded.is_answering)
        guarded.resume(guarded.num_outages)
        assert not (await granted(guarded, claim(tokens))).is_local
        await guarded.settle(meanwhile, ActualUsage(0, 1))
        await client.aclose()


async def test_connections_from_before_its_restart_do_not_make_it_away_again(
    tmp_path: Path, redis_program: str, guard: Guard
) -> None:
    tokens = rule(amount=100)
    with OwnRedis(redis_program, tmp_path) as server:
        client = connect(server.url)
        guarded = guard(RedisLimiter(client), UnavailablePolicy.REFUSE, deadline_s=1.0)
        # As many connections as there are calls at once, all of which lie idle then.
        await asyncio.gather(*(granted(guarded, claim(tokens)) for _ in range(8)))
        server.stop()
        server.start()
        with pytest.raises(LimitsUnavailable):
            await guarded.acquire(claim(tokens))
        await until(lambda: guarded.is_answering)
        guarded.resume(guarded.num_outages)

        await asyncio.gather(*(granted(guarded, claim(tokens)) for _ in range(8)))

        assert not guarded.state.is_degraded
        await client.aclose()


@pytest.mark.parametrize("is_seen_closing", [True, False])
async def test_a_redis_server_that_was_started_again_while_nobody_asked_is_found_out(
    tmp_path: Path, redis_program: str, guard: Guard, is_seen_closing: bool
) -> None:
    tokens = rule(amount=100)
    with OwnRedis(redis_program, tmp_path) as server:
        client = connect(server.url)
        guarded = guard(RedisLimiter(client), UnavailablePolicy.REFUSE)
        await granted(guarded, claim(tokens))
        [connection] = client.connection_pool._available_connections
        server.stop()
        server.start()
        if is_seen_closing:
            await until(connection._reader.at_eof)

        with pytest.raises(LimitsUnavailable):
            await guarded.acquire(claim(tokens))

        assert guarded.num_outages == 1
        await client.aclose()
