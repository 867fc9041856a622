"""A request that finds a quota reserved waits for returned tokens, in order."""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import replace
from typing import TypeVar

import pytest

import vinery_accounts.limits.queue
from tests.accounts.limits.builders import request_for
from tests.requests.test_reservation import (
    NUM_PROMPT_TOKENS,
    answered,
    limits_of,
    num_used,
    prepared,
    reservation_of,
    reserved,
    rule,
)
from tests.tables import table
from vinery_accounts.limits.reservations import NO_USAGE, ActualUsage, Denial, Lease
from vinery_accounts.limits.rulebook import Snapshot
from vinery_accounts.limits.rules import PLATFORM, Metric, Rule
from vinery_accounts.limits.service import LimitService
from vinery_serving.core.errors import LimitReached
from vinery_serving.flow.prepared import PreparedRequest
from vinery_serving.requests.reservation import Reservation

T = TypeVar("T")

FIRST = NUM_PROMPT_TOKENS + 128  # what is reserved for a long answer


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait times out because the machine is busy."""
    monkeypatch.setattr(vinery_accounts.limits.queue, "MAX_QUOTA_WAIT_S", 600.0)


async def in_queue(quota: Reservation, running: PreparedRequest) -> asyncio.Task[None]:
    return await queued(quota._limits, quota.reserve(running))


async def queued(limits: LimitService, asking: Coroutine[object, object, T]) -> asyncio.Task[T]:
    """The task of a request that waits in the queue now."""
    num_before = num_waiting(limits)
    task = asyncio.create_task(asking)
    while num_waiting(limits) == num_before and not task.done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert not task.done()
    return task


def num_waiting(limits: LimitService) -> int:
    return sum(map(len, limits._queue._waiters.values()))


def processes(amount: int, number: int = 2) -> tuple[LimitService, LimitService]:
    """Two services that count in one store, without messages to each other; or one, twice."""
    here, there = limits_of(rule(amount)), limits_of(rule(amount))
    there._limiter = here._limiter
    return here, there if number > 1 else here


LAST = 20 + 128 - 100 - NUM_PROMPT_TOKENS


@table("num_processes", [1, 2])
@table("num_tokens, granted", [(5, (128, False)), (100, (LAST, True))])
async def test_unused_tokens_go_to_the_next_request_the_last_as_its_last_grant(
    num_processes: int, num_tokens: int, granted: tuple[int, bool]
) -> None:
    here, there = processes(FIRST + 20, num_processes)
    first, second = await reserved(here), reservation_of(there, "2")
    waiting = await in_queue(second, prepared(1000))
    first.settle(answered(num_tokens))
    await asyncio.wait_for(waiting, 60)
    assert (second.num_granted, second.is_last) == granted


async def test_the_first_request_is_served_first() -> None:
    limits = limits_of(rule(2 * FIRST - 1))
    quotas = [reservation_of(limits, str(number)) for number in range(4)]
    await quotas[0].reserve(prepared(1000))
    waiting = [await in_queue(quota, prepared(1000)) for quota in quotas[1:]]
    for number, task in enumerate(waiting):
        quotas[number].settle(answered(0))
        await task
        assert [each.done() for each in waiting] == [at <= number for at in range(3)]


@table("num_processes", [1, 2])
async def test_once_no_tokens_can_be_returned_all_requests_are_refused(num_processes: int) -> None:
    here, there = processes(FIRST, num_processes)
    first = await reserved(here)
    waiting = [await in_queue(reservation_of(there, str(n)), prepared(1000)) for n in range(5)]
    first.settle(answered(128))
    answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
    assert [type(answer) for answer in answers] == [LimitReached] * 5
    assert {str(getattr(answer, "code", "")) for answer in answers} == {"insufficient_quota"}


async def test_a_wait_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vinery_accounts.limits.queue, "MAX_QUOTA_WAIT_S", 0.05)
    limits = limits_of(rule(FIRST))
    await reserved(limits)
    with pytest.raises(LimitReached):
        await reservation_of(limits, "2").reserve(prepared(1000))


async def test_a_request_that_another_quota_blocks_leaves_the_first_to_the_next() -> None:
    shared = rule(1000, metric=Metric.OUTPUT_TOKENS)
    own = replace(shared, id=2)
    limits = limits_of(shared, own)
    held, held_own = [await lease_of(limits, 1000, each) for each in (shared, own)]
    both = await waiting_for(limits, 500, shared, own)
    third = await waiting_for(limits, 500, shared)

    limits.settle(held, NO_USAGE)

    assert isinstance(await asyncio.wait_for(third, 60), Lease)
    assert not both.done()
    limits.settle(held_own, NO_USAGE)
    assert isinstance(await asyncio.wait_for(both, 60), Lease)


async def test_of_two_requests_woken_together_the_earlier_stays_first() -> None:
    limits = limits_of(rule(1000, metric=Metric.OUTPUT_TOKENS))
    held = [await lease_of(limits, num_tokens) for num_tokens in (450, 450, 100)]
    early = await waiting_for(limits, 500)
    late = await waiting_for(limits, 500)
    [[first, _]] = limits._queue._waiters.values()
    denial = first.denial

    for lease in held[:2]:
        limits.settle(lease, ActualUsage(num_output_tokens=250))
    while first.denial is denial:  # noqa: ASYNC110
        await asyncio.sleep(0)  # until it has tried in vain
    limits.settle(held[2], NO_USAGE)

    assert isinstance(await asyncio.wait_for(early, 60), Lease)
    assert not late.done()
    late.cancel()


async def test_new_requests_do_not_take_tokens_that_an_earlier_request_waits_for() -> None:
    limits = limits_of(rule(1000, metric=Metric.OUTPUT_TOKENS))
    held = [await lease_of(limits, 450), await lease_of(limits, 450)]
    early = await waiting_for(limits, 500)
    late = await waiting_for(limits, 100)  # for which there is room

    limits.settle(held[0], NO_USAGE)

    assert isinstance(await asyncio.wait_for(early, 60), Lease)
    limits.settle(held[1], NO_USAGE)
    assert isinstance(await asyncio.wait_for(late, 60), Lease)


async def test_queues_do_not_leak() -> None:
    limits = limits_of(rule(FIRST))
    first = await reserved(limits)
    waiting = [await in_queue(reservation_of(limits, str(n)), prepared(1000)) for n in range(5)]
    for task in waiting[::2]:
        task.cancel()
    first.settle(answered(128))
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not limits._queue._waiters
    assert not any(limits._queue._num_waiting.values())


async def lease_of(limits: LimitService, num_tokens: int, *rules: Rule) -> Lease:
    asked = request_for(*(rules or limits.book.rules), num_output_tokens=num_tokens)
    answer = await limits.reserve(asked)
    assert isinstance(answer, Lease)
    return answer


async def waiting_for(
    limits: LimitService, num_tokens: int, *rules: Rule
) -> asyncio.Task[Lease | Denial]:
    asked = request_for(*(rules or limits.book.rules), num_output_tokens=num_tokens)
    return await queued(limits, limits.reserve_or_wait(asked))


@table("num_processes, is_cancelled_first", [(1, False), (2, True)])
async def test_a_cancelled_wait_wakes_the_next_request(
    num_processes: int, is_cancelled_first: bool
) -> None:
    here, there = processes(FIRST + NUM_PROMPT_TOKENS, num_processes)
    first, third = await reserved(here), reservation_of(there, "3")
    gone = await in_queue(reservation_of(there, "2"), prepared(1000))
    waiting = await in_queue(third, prepared(1000))
    if is_cancelled_first:
        gone.cancel()
    first.settle(answered(0))
    gone.cancel()
    await asyncio.wait_for(waiting, 60)
    assert third.num_granted == 128


@table("amount", [None, 2000])
async def test_a_removed_or_larger_limit_ends_the_wait(amount: int | None) -> None:
    before = rule(1000, metric=Metric.OUTPUT_TOKENS)
    limits = limits_of(before)
    held = await lease_of(limits, 1000)
    waiting = await waiting_for(limits, 500)

    after = () if amount is None else (replace(before, amount=amount),)
    limits.book.follow(Snapshot({PLATFORM: after}))

    answer = await asyncio.wait_for(waiting, 60)
    assert isinstance(answer, Lease)
    assert [each.amount for each in answer.reading.rules] == [each.amount for each in after]
    limits.settle(held, NO_USAGE)


@table("metric", [Metric.INPUT_TOKENS, Metric.REQUESTS])
async def test_no_request_waits_for_metrics_that_are_never_returned(metric: Metric) -> None:
    amount = 1 if metric is Metric.REQUESTS else NUM_PROMPT_TOKENS
    limits = limits_of(rule(amount, metric=metric))
    await reserved(limits)
    async with asyncio.timeout(60):
        with pytest.raises(LimitReached):
            await reservation_of(limits, "2").reserve(prepared(1000))


@table("seed", range(5))
async def test_many_short_answers_at_once_use_all_of_a_quota(seed: int) -> None:
    random_ = random.Random(seed)
    limits = limits_of(rule(10_000))
    most = 0

    async def ask(number: int) -> None:
        nonlocal most
        quota = reservation_of(limits, str(number))
        try:
            await quota.reserve(prepared(1000))
        except LimitReached:
            return
        most = max(most, await num_used(limits))
        await asyncio.sleep(random_.uniform(0, 0.02))
        quota.settle(answered(min(quota.num_granted, random_.randint(1, 30))))

    await asyncio.gather(*map(ask, range(1000)))
    assert most <= 10_000
    assert 9_900 <= await num_used(limits) <= 10_000
