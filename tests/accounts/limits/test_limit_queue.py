"""A short wait in a queue instead of a refusal."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.accounts.limits.builders import denied, granted, request_for, rule, slots, used
from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery_accounts.limits import reservations
from vinery_accounts.limits.failover import FailoverLimiter, UnavailablePolicy
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.queue import WaitQueue
from vinery_accounts.limits.reservations import ActualUsage, Denial, Lease, ReservationRequest
from vinery_accounts.limits.rules import Rule, Window


class Queueing:
    """A limiter behind a queue, as `LimitService` has them."""

    def __init__(self, limiter: reservations.Limiter | None = None, **bounds: Any) -> None:
        self._limiter = limiter or MemoryLimiter()
        self.queue = WaitQueue(self._attempt, **{"max_wait_s": 60.0, **bounds})
        self.rules: tuple[Rule, ...] | None = None  # that replace those of each request

    async def acquire(self, request: ReservationRequest) -> Lease | Denial:
        return await self.queue.reserve(request, waits_for_quotas=False)

    async def settle(self, lease: Lease, usage: ActualUsage) -> None:
        await self._limiter.settle(lease, usage)
        self.queue.note_settled(lease)

    async def levels(self, rules: Sequence[Rule]) -> tuple[reservations.Level, ...]:
        return await self._limiter.levels(rules)

    @property
    def num_waiting(self) -> int:
        return self.queue._num_waiting.total()

    async def _attempt(self, request: ReservationRequest) -> Lease | Denial:
        rules = request.rules if self.rules is None else self.rules
        return await self._limiter.acquire(structs.replace(request, rules=rules))


class Slow(MemoryLimiter):
    """Reserves at once, and answers when it may."""

    def __init__(self) -> None:
        super().__init__(lease_ttl_s=3600.0)
        self.may_answer = asyncio.Event()

    async def acquire(self, request: ReservationRequest) -> Lease | Denial:
        answer = await super().acquire(request)
        if isinstance(answer, Lease):
            await self.may_answer.wait()
        return answer


def on_failover(store: reservations.Limiter) -> FailoverLimiter:
    """A limiter that returns what a cancelled call has reserved."""
    return FailoverLimiter(
        store, MemoryLimiter(), UnavailablePolicy.REFUSE, deadline_s=60.0, probe_interval_s=0.01
    )


async def in_use(
    limiter: reservations.Limiter | None = None, **bounds: Any
) -> tuple[Queueing, Rule, Lease]:
    """A queue, a rule of one slot, and the lease that has it."""
    queueing, slot = Queueing(limiter, **bounds), slots(1)
    return queueing, slot, await granted(queueing, request_for(slot))


async def queued(limiter: Queueing, asked: ReservationRequest) -> asyncio.Task[Lease | Denial]:
    """Start a request that waits."""
    before = limiter.num_waiting
    task = asyncio.create_task(limiter.acquire(asked))
    while limiter.num_waiting == before:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return task


async def lease_of(task: asyncio.Task[Lease | Denial]) -> Lease:
    answer = await asyncio.wait_for(task, 60)
    assert isinstance(answer, Lease)
    return answer


async def test_a_slot_goes_to_the_request_that_waits_for_it() -> None:
    limiter, slot, first = await in_use()
    assert limiter.num_waiting == 0
    waiting = await queued(limiter, request_for(slot))
    await limiter.settle(first, ActualUsage())
    await lease_of(waiting)
    assert limiter.num_waiting == 0
    assert await used(limiter, slot) == [1]


async def test_a_bucket_is_waited_for() -> None:
    limiter = Queueing()
    # A thousand a millisecond.
    bucket = rule(window=Window.MINUTE, amount=60_000_000)
    await granted(limiter, request_for(bucket, num_input_tokens=59_999_999))
    await granted(limiter, request_for(bucket, num_input_tokens=5_000))


async def test_a_limit_that_does_not_free_up_in_a_moment_refuses_at_once() -> None:
    limiter = Queueing(MemoryLimiter(clock=FakeClock()), max_wait_s=10.0)
    day = rule(amount=10)
    slow, small = rule(window=Window.MINUTE, amount=10), rule(window=Window.MINUTE, amount=5)
    await granted(limiter, request_for(day, slow, num_input_tokens=9))
    assert (await denied(limiter, request_for(day))).is_quota
    assert (await denied(limiter, request_for(small, num_input_tokens=5))).is_too_large
    # Nine tokens more, which refill at ten a minute.
    assert (await denied(limiter, request_for(slow, num_input_tokens=8))).wait_s == 54.0


async def test_a_bucket_waits_for_no_slot_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "SLOT_WAIT_S", 3600.0)
    limiter, slot = Queueing(), slots(1)
    bucket = rule(window=Window.MINUTE, amount=60_000_000)
    await granted(limiter, request_for(bucket, slot, num_input_tokens=59_999_999))
    await queued(limiter, request_for(slot, owner="patient"))
    for _ in range(10):  # the queue makes an attempt, and pauses for an hour
        await asyncio.sleep(0)
    # A queue that tries again only when the slot may be free is too late.
    await granted(limiter, request_for(bucket, num_input_tokens=5_000, owner="quick"))


async def test_after_its_time_a_wait_is_a_refusal() -> None:
    limiter, slot, lease = await in_use(max_wait_s=0.02)
    denial = await denied(limiter, request_for(slot))
    assert denial.rule == slot
    assert limiter.num_waiting == 0
    await limiter.settle(lease, ActualUsage())
    await granted(limiter, request_for(slot))


async def test_queues_are_bounded() -> None:
    limiter, slot, _ = await in_use(max_waiting=3, max_waiting_per_owner=2)
    for owner in ("one", "one", "two"):
        await queued(limiter, request_for(slot, owner=owner))
    await denied(limiter, request_for(slot, owner="one"))
    await denied(limiter, request_for(slot, owner="three"))
    assert limiter.num_waiting == 3


async def test_no_request_overtakes_in_a_queue() -> None:
    limiter, slot, lease = await in_use()
    waiting = [await queued(limiter, request_for(slot, owner="one")) for _ in range(5)]
    for task in waiting:
        assert not any(other.done() for other in waiting[waiting.index(task) :])
        await limiter.settle(lease, ActualUsage())
        lease = await lease_of(task)


async def test_owners_are_served_in_turn() -> None:
    limiter, slot, lease = await in_use()
    greedy = [await queued(limiter, request_for(slot, owner="greedy")) for _ in range(4)]
    modest = await queued(limiter, request_for(slot, owner="modest"))
    served = []
    for _ in range(5):
        await limiter.settle(lease, ActualUsage())
        waiting = [task for task in (*greedy, modest) if task not in served]
        (task,), _ = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
        served.append(task)
        lease = await lease_of(task)
    assert served.index(modest) == 1


async def test_a_slot_that_is_freed_between_two_attempts_goes_to_the_queue_before() -> None:
    class Store(MemoryLimiter):
        """Frees the slot after it has denied a request and before it answers."""

        async def acquire(self, request: ReservationRequest) -> Lease | Denial:
            answer = await super().acquire(request)
            if request.owner == "first" and isinstance(answer, Denial) and limiter.num_waiting == 2:
                await limiter.settle(lease, ActualUsage())
            return answer

    limiter, slot, lease = await in_use(Store())
    first = await queued(limiter, request_for(slot, owner="first"))
    second = await queued(limiter, request_for(slot, owner="second"))

    won = await lease_of(first)
    assert not second.done()
    await limiter.settle(won, ActualUsage())
    await lease_of(second)


@table("owner", ["one", "two"])
async def test_a_later_request_does_not_take_what_an_earlier_one_waits_for(owner: str) -> None:
    limiter, slot, lease = await in_use()
    waiting = await queued(limiter, request_for(slot, owner="one"))

    async def newcomer() -> Lease | Denial:
        await limiter.settle(lease, ActualUsage())
        return await limiter.acquire(request_for(slot, owner=owner))

    late = asyncio.create_task(newcomer())
    won = await lease_of(waiting)
    assert not late.done()
    # A request for something else is granted.
    await granted(limiter, request_for(slots(1), owner=owner))
    await limiter.settle(won, ActualUsage())
    await lease_of(late)


async def test_an_owner_that_is_stuck_does_not_delay_another() -> None:
    limiter, mine, yours = Queueing(), slots(1), slots(1)
    await granted(limiter, request_for(mine))
    lease = await granted(limiter, request_for(yours))
    stuck = await queued(limiter, request_for(mine, owner="me"))
    waiting = await queued(limiter, request_for(yours, owner="you"))
    await limiter.settle(lease, ActualUsage())
    await lease_of(waiting)
    assert not stuck.done()


async def test_a_limit_that_is_larger_now_grants_a_waiting_request() -> None:
    limiter, slot, _ = await in_use()
    waiting = await queued(limiter, request_for(slot))
    limiter.rules = (replace(slot, amount=2),)
    await lease_of(waiting)


@table("bounds", [{"max_waiting": 1}, {"max_wait_s": 0.01}])
async def test_a_denial_has_nothing_of_another_request(bounds: dict[str, float]) -> None:
    limiter, slot, _ = await in_use(**bounds)
    theirs = rule(window=Window.MINUTE, amount=777_777, scope="key:1")
    first = await queued(limiter, request_for(slot, theirs, num_input_tokens=100, owner="1"))

    denial = await denied(limiter, request_for(slot, rule(scope="key:2"), owner="2"))

    assert (denial.rule, denial.num_needed) == (slot, 1)
    assert theirs not in denial.reading.rules
    first.cancel()


async def test_a_request_that_leaves_the_queue_leaves_nothing_behind() -> None:
    slow, slot, tokens = Slow(), slots(1), rule()
    slow.may_answer.set()
    limiter = Queueing(on_failover(slow))
    lease = await granted(limiter, request_for(slot))
    early = await queued(limiter, request_for(slot, tokens))
    late = await queued(limiter, request_for(slot, tokens))

    early.cancel()
    await asyncio.wait([early])
    # It receives its slot at the moment at which it leaves.
    await limiter.settle(lease, ActualUsage())
    slow.may_answer.clear()
    while await used(limiter, tokens) == [0]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    late.cancel()
    await asyncio.wait([late])

    assert late.cancelled()
    async with asyncio.timeout(60):
        while await used(limiter, slot, tokens) != [0, 0]:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert limiter.num_waiting == 0


async def test_a_lease_that_comes_when_the_time_is_over_goes_back() -> None:
    slow, slot = Slow(), slots(1)
    slow.may_answer.set()
    limiter = Queueing(on_failover(slow), max_wait_s=0.05)
    lease = await granted(limiter, request_for(slot))
    waiting = await queued(limiter, request_for(slot))
    slow.may_answer.clear()
    await limiter.settle(lease, ActualUsage())
    assert isinstance(await waiting, Denial)
    assert await used(limiter, slot) == [1]
    async with asyncio.timeout(60):
        while await used(limiter, slot) == [1]:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_an_error_is_raised_where_it_belongs() -> None:
    limiter, slot = Queueing(), slots(2)
    held = request_for(slot)
    await granted(limiter, held)
    lease = await granted(limiter, request_for(slot))
    first = await queued(limiter, request_for(slot, owner="one"))
    twice = await queued(limiter, held)
    last = await queued(limiter, request_for(slot, owner="two"))

    await limiter.settle(lease, ActualUsage())

    won = await lease_of(first)
    with pytest.raises(reservations.LeaseExists):
        await asyncio.wait_for(twice, 60)
    await limiter.settle(won, ActualUsage())
    await lease_of(last)


@table("num_owners", [1, 20])
async def test_queues_do_not_leak(num_owners: int) -> None:
    limiter = Queueing()
    slot: Rule = slots(2)
    num_running = 0

    async def request(number: int) -> None:
        nonlocal num_running
        lease = await limiter.acquire(request_for(slot, owner=f"o{number % num_owners}"))
        assert isinstance(lease, Lease)
        num_running += 1
        assert num_running <= 2
        await asyncio.sleep(0)
        num_running -= 1
        await limiter.settle(lease, ActualUsage())

    await asyncio.gather(*(request(number) for number in range(90)))

    assert limiter.num_waiting == 0
    assert await used(limiter, slot) == [0]
    assert not limiter.queue._waiters
    assert not limiter.queue._turns
