"""A short wait in line, instead of a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from accounts.limits import reservations
from accounts.limits.memory import MemoryLimiter
from accounts.limits.queue import QueueingLimiter
from accounts.limits.reservations import ActualUsage, Denial, Lease, LeaseExists, ReservationRequest
from accounts.limits.rules import Rule, Window
from tests.accounts.limits.builders import claim, denied, granted, places, rule, used

Queue = Callable[..., QueueingLimiter]


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    """Makes limiters with lines, on a real clock: who waits for it must not wait for ever."""
    made: list[QueueingLimiter] = []

    def make(**more: Any) -> QueueingLimiter:
        settings = {"max_wait_s": 60.0, **more}
        made.append(QueueingLimiter(MemoryLimiter(), **settings))
        return made[-1]

    yield make
    for limiter in made:
        await limiter.close()


async def in_line(
    limiter: QueueingLimiter, asked: ReservationRequest
) -> asyncio.Task[Lease | Denial]:
    """Somebody who waits."""
    before = limiter.num_waiting
    task = asyncio.create_task(limiter.acquire(asked))
    while limiter.num_waiting == before:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return task


async def lease_of(task: asyncio.Task[Lease | Denial]) -> Lease:
    answer = await asyncio.wait_for(task, 60)
    assert isinstance(answer, Lease)
    return answer


async def test_who_fits_does_not_wait(queue: Queue) -> None:
    limiter = queue()
    lease = await granted(limiter, claim(places(1)))

    assert (await limiter.extend(lease, 7)).num_output_tokens == 7
    await limiter.renew([lease])
    assert limiter.num_waiting == 0


async def test_a_place_goes_to_who_waits_for_it(queue: Queue) -> None:
    limiter, place = queue(), places(1)
    first = await granted(limiter, claim(place))
    waiting = await in_line(limiter, claim(place))

    await limiter.settle(first, ActualUsage())

    await lease_of(waiting)
    assert limiter.num_waiting == 0
    assert await used(limiter, place) == [1]


async def test_a_bucket_is_waited_for(queue: Queue) -> None:
    limiter = queue()
    # A thousand a millisecond.
    bucket = rule(window=Window.MINUTE, amount=60_000_000)
    await granted(limiter, claim(bucket, num_input_tokens=59_999_999))

    await granted(limiter, claim(bucket, num_input_tokens=5_000))


async def test_a_bucket_does_not_wait_for_a_place_of_somebody_else(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "SLOT_WAIT_S", 3600.0)
    limiter, place = queue(), places(1)
    bucket = rule(window=Window.MINUTE, amount=60_000_000)
    await granted(limiter, claim(bucket, place, num_input_tokens=59_999_999))
    await in_line(limiter, claim(place, owner="patient"))
    for _ in range(10):  # the line is looked at, and left alone for an hour
        await asyncio.sleep(0)

    # Whoever looks again only when the place may be free finds the time over.
    await granted(limiter, claim(bucket, num_input_tokens=5_000, owner="quick"))


async def test_what_does_not_pass_in_a_moment_is_refused_at_once(queue: Queue) -> None:
    limiter = queue(max_wait_s=10.0)
    day = rule(amount=10)
    slow, small = rule(window=Window.MINUTE, amount=10), rule(window=Window.MINUTE, amount=5)
    await granted(limiter, claim(day, slow, num_input_tokens=9))

    assert (await denied(limiter, claim(day))).is_quota
    assert (await denied(limiter, claim(small, num_input_tokens=5))).is_too_large
    assert (await denied(limiter, claim(slow, num_input_tokens=8))).wait_s is not None


async def test_after_its_time_a_wait_is_a_refusal(queue: Queue) -> None:
    limiter, place = queue(max_wait_s=0.02), places(1)
    lease = await granted(limiter, claim(place))

    denial = await denied(limiter, claim(place))

    assert denial.rule == place
    assert limiter.num_waiting == 0
    await limiter.settle(lease, ActualUsage())
    await granted(limiter, claim(place))


async def test_nobody_overtakes_in_a_line(queue: Queue) -> None:
    limiter, place = queue(), places(1)
    lease = await granted(limiter, claim(place))
    waiting = [await in_line(limiter, claim(place, owner="one")) for _ in range(5)]

    for task in waiting:
        assert not any(other.done() for other in waiting[waiting.index(task) :])
        await limiter.settle(lease, ActualUsage())
        lease = await lease_of(task)


async def test_owners_take_turns(queue: Queue) -> None:
    limiter, place = queue(), places(1)
    lease = await granted(limiter, claim(place))
    greedy = [await in_line(limiter, claim(place, owner="greedy")) for _ in range(4)]
    modest = await in_line(limiter, claim(place, owner="modest"))

    served = []
    for _ in range(5):
        await limiter.settle(lease, ActualUsage())
        await asyncio.wait(
            [t for t in (*greedy, modest) if t not in served], return_when="FIRST_COMPLETED"
        )
        (task,) = [task for task in (*greedy, modest) if task.done() and task not in served]
        served.append(task)
        lease = await lease_of(task)

    assert served.index(modest) == 1


async def test_a_place_that_is_freed_between_two_looks_goes_to_the_line_before(
    queue: Queue,
) -> None:
    class Store(MemoryLimiter):
        """Frees the slot after it has denied a request and before it answers."""

        async def acquire(self, claim: ReservationRequest) -> Lease | Denial:
            answer = await super().acquire(claim)
            if claim.owner == "first" and isinstance(answer, Denial) and limiter.num_waiting == 2:
                await limiter.settle(lease, ActualUsage())
            return answer

    limiter, place = QueueingLimiter(Store(), max_wait_s=60.0), places(1)
    lease = await granted(limiter, claim(place))
    first = await in_line(limiter, claim(place, owner="first"))
    second = await in_line(limiter, claim(place, owner="second"))

    won = await lease_of(first)
    assert not second.done()
    await limiter.settle(won, ActualUsage())
    await lease_of(second)
    await limiter.close()


@pytest.mark.parametrize("owner", ["one", "two"])
async def test_newcomers_do_not_take_what_somebody_waits_for(queue: Queue, owner: str) -> None:
    limiter, place, other = queue(), places(1), places(1)
    lease = await granted(limiter, claim(place))
    waiting = await in_line(limiter, claim(place, owner="one"))

    async def newcomer() -> Lease | Denial:
        await limiter.settle(lease, ActualUsage())
        return await limiter.acquire(claim(place, owner=owner))

    late = asyncio.create_task(newcomer())
    won = await lease_of(waiting)
    assert not late.done()
    # Who wants something else is let in.
    await granted(limiter, claim(other, owner=owner))
    await limiter.settle(won, ActualUsage())
    await lease_of(late)


async def test_one_owner_who_is_stuck_does_not_hold_up_another(queue: Queue) -> None:
    limiter, mine, yours = queue(), places(1), places(1)
    await granted(limiter, claim(mine))
    lease = await granted(limiter, claim(yours))
    stuck = await in_line(limiter, claim(mine, owner="me"))
    waiting = await in_line(limiter, claim(yours, owner="you"))

    await limiter.settle(lease, ActualUsage())

    await lease_of(waiting)
    assert not stuck.done()


async def test_lines_are_bounded(queue: Queue) -> None:
    limiter, place = queue(max_waiting=3, max_waiting_per_owner=2), places(1)
    await granted(limiter, claim(place))
    for owner in ("one", "one", "two"):
        await in_line(limiter, claim(place, owner=owner))

    await denied(limiter, claim(place, owner="one"))
    await denied(limiter, claim(place, owner="three"))

    assert limiter.num_waiting == 3


@pytest.mark.parametrize("bounds", [{"max_waiting": 1}, {"max_wait_s": 0.01}])
async def test_who_stands_behind_somebody_is_told_nothing_of_their_limits(
    queue: Queue, bounds: dict[str, float]
) -> None:
    limiter, place = queue(**bounds), places(1)
    await granted(limiter, claim(place))
    theirs = rule(window=Window.MINUTE, amount=777_777, scope="key:1")
    first = await in_line(limiter, claim(place, theirs, num_input_tokens=100, owner="1"))

    denial = await denied(limiter, claim(place, rule(scope="key:2"), owner="2"))

    assert (denial.rule, denial.num_needed) == (place, 1)
    assert theirs not in denial.reading.rules
    first.cancel()


async def test_a_limit_that_is_larger_now_lets_in_who_waits_for_it(queue: Queue) -> None:
    place = places(1)
    now = {"rules": (place,)}
    limiter = queue(refresh=lambda claim: structs.replace(claim, rules=now["rules"]))
    await granted(limiter, claim(place))
    waiting = await in_line(limiter, claim(place))

    now["rules"] = (replace(place, amount=2),)

    await lease_of(waiting)


async def test_who_leaves_the_line_leaves_nothing_behind(queue: Queue) -> None:
    limiter, place, tokens = queue(), places(1), rule()
    lease = await granted(limiter, claim(place))
    early = await in_line(limiter, claim(place, tokens))
    late = await in_line(limiter, claim(place, tokens))

    early.cancel()
    await asyncio.wait([early])
    # It is given its place in the very moment in which it leaves.
    await limiter.settle(lease, ActualUsage())
    while await used(limiter, tokens) == [0]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    late.cancel()
    await asyncio.wait([late])

    assert late.cancelled()
    assert await used(limiter, place, tokens) == [0, 0]
    assert limiter.num_waiting == 0


async def test_a_lease_that_comes_when_the_time_is_over_goes_back(queue: Queue) -> None:
    class Slow(MemoryLimiter):
        may_answer = asyncio.Event()

        async def acquire(self, claim: ReservationRequest) -> Lease | Denial:
            answer = await super().acquire(claim)
            if isinstance(answer, Lease):
                await self.may_answer.wait()
            return answer

    slow, place = Slow(lease_ttl_s=3600.0), places(1)
    slow.may_answer.set()
    limiter = QueueingLimiter(slow, max_wait_s=0.05)
    lease = await granted(limiter, claim(place))
    waiting = await in_line(limiter, claim(place))
    slow.may_answer.clear()
    await limiter.settle(lease, ActualUsage())

    assert isinstance(await waiting, Denial)
    assert await used(limiter, place) == [1]
    slow.may_answer.set()
    async with asyncio.timeout(60):
        while await used(limiter, place) == [1]:  # noqa: ASYNC110
            await asyncio.sleep(0)
    await limiter.close()


async def test_an_error_is_raised_where_it_belongs(queue: Queue) -> None:
    limiter, place = queue(), places(2)
    held = claim(place)
    await granted(limiter, held)
    lease = await granted(limiter, claim(place))
    first = await in_line(limiter, claim(place, owner="one"))
    twice = await in_line(limiter, held)
    last = await in_line(limiter, claim(place, owner="two"))

    await limiter.settle(lease, ActualUsage())

    won = await lease_of(first)
    with pytest.raises(LeaseExists):
        await asyncio.wait_for(twice, 60)
    await limiter.settle(won, ActualUsage())
    await lease_of(last)


@pytest.mark.parametrize("num_owners", [1, 20])
async def test_lines_do_not_leak(queue: Queue, num_owners: int) -> None:
    limiter = queue()
    place: Rule = places(2)
    num_running = 0

    async def request(number: int) -> None:
        nonlocal num_running
        lease = await limiter.acquire(claim(place, owner=f"o{number % num_owners}"))
        assert isinstance(lease, Lease)
        num_running += 1
        assert num_running <= 2
        await asyncio.sleep(0)
        num_running -= 1
        await limiter.settle(lease, ActualUsage())

    await asyncio.gather(*(request(number) for number in range(90)))

    assert limiter.num_waiting == 0
    assert await used(limiter, place) == [0]
    assert not limiter._queues
    assert not limiter._num_awaiting
