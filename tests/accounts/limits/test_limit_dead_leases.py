"""Redis returns the reservations of a dead process, when the usage records show the actual use."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec import structs
from redis import Redis
from usage_builders import admission, store, tokens

from tests.accounts.limits.builders import granted, request_for, rule, slots, used
from tests.conftest import until
from vinery_accounts.limits.recovery import settle_dead_leases
from vinery_accounts.limits.redis import DEFAULT_PREFIX, RedisLimiter, connect, settle_on
from vinery_accounts.limits.reservations import ActualUsage, ReservationRequest
from vinery_accounts.limits.rules import Metric, Rule, Window
from vinery_accounts.usage.entries import Checkpoint, encode
from vinery_accounts.usage.journal import Journal
from vinery_accounts.usage.ledger import UsageLedger
from vinery_accounts.usage.recovery import recover_orphans, store_then

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

RULES = (
    rule(Metric.TOKENS, Window.DAY, 1000),
    rule(Metric.OUTPUT_TOKENS, Window.MONTH, 1000, time_zone="Asia/Tokyo"),
    rule(Metric.WEIGHTED_TOKENS, Window.NONE, 1000),
    rule(Metric.REQUESTS, Window.WEEK, 1000),
    slots(5),
)
AnswerT = TypeVar("AnswerT")


class Process:
    """A process that counts in Redis, and dies after each call."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"test:{uuid.uuid4().hex}:"

    def run(self, do: Callable[[RedisLimiter], Awaitable[AnswerT]]) -> AnswerT:
        async def live() -> AnswerT:
            client = connect(self.url, deadline_s=60.0)
            try:
                return await do(RedisLimiter(client, prefix=self.prefix))
            finally:
                await client.aclose()

        return asyncio.run(live())

    def reserve(self, asked: ReservationRequest) -> str:

        async def reserve(limiter: RedisLimiter) -> str:
            return (await granted(limiter, asked)).id

        return self.run(reserve)

    def used(self) -> list[int]:
        return self.run(lambda limiter: used(limiter, *RULES))

    def store_usage_of(self, request_id: str, *, num_prompt: int, num_output: int) -> None:
        weighted = num_prompt + 2.5 * num_output
        store(request_id, weighted_tokens=weighted, **tokens(num_prompt, num_output))
        with Redis.from_url(self.url) as client:
            settle_on(client, [request_id, "stranger"], prefix=self.prefix)


@pytest.fixture
def process(redis_url: str) -> Process:
    return Process(redis_url)


def dead_lease(process: Process) -> str:
    """Return the id of an expired lease of 10 input tokens and 190 output tokens."""
    asked = request_for(*RULES, num_input_tokens=10, num_output_tokens=100)

    async def reserve(limiter: RedisLimiter) -> str:
        lease = await granted(limiter, asked)
        await limiter.extend(lease, 90)
        limiter._lease_ttl_ms = 1  # the process dies
        await limiter.renew([lease])
        return lease.id

    lease_id = process.run(reserve)
    until(lambda: process.used() == [200, 190, 200, 1, 0])
    return lease_id


def test_only_what_was_used_stays_used_and_a_slot_is_free_at_once(process: Process) -> None:
    lease_id = dead_lease(process)
    process.store_usage_of(lease_id, num_prompt=0, num_output=0)
    assert process.used() == [0, 0, 0, 0, 0]

    lease_id = dead_lease(process)
    process.store_usage_of(lease_id, num_prompt=10, num_output=8)
    process.store_usage_of(lease_id, num_prompt=10, num_output=8)
    assert process.used() == [18, 8, 30, 1, 0]

    lease_id = process.reserve(request_for(*RULES))
    assert process.used()[-1] == 1
    process.store_usage_of(lease_id, num_prompt=1, num_output=1)
    assert process.used()[-1] == 0


def test_a_lease_is_given_back_whole_when_another_process_begins_anew(process: Process) -> None:
    lease_id = dead_lease(process)

    process.run(lambda limiter: limiter.release([lease_id, "stranger"]))

    assert process.used() == [0, 0, 0, 0, 0]


def test_what_was_settled_is_left_alone(process: Process) -> None:
    asked = request_for(*RULES, num_input_tokens=10, num_output_tokens=100)

    async def reserve_and_settle(limiter: RedisLimiter) -> str:
        lease = await granted(limiter, asked)
        await limiter.settle(lease, ActualUsage(num_prompt_tokens=10, num_output_tokens=30))
        return lease.id

    lease_id = process.run(reserve_and_settle)
    process.store_usage_of(lease_id, num_prompt=10, num_output=8)

    assert process.used() == [40, 30, 40, 1, 0]


@pytest.mark.django_db(transaction=True)
def test_a_process_gives_back_what_was_not_settled(
    process: Process, settings: Any, tmp_path: Path
) -> None:
    # The process counts under this server's prefix.
    settings.VINERY_REDIS_URL, process.prefix = process.url, DEFAULT_PREFIX
    lease_id, mine = some_lease(process)
    journal = Journal.create(tmp_path)
    for entry in (admission(lease_id), Checkpoint(((lease_id, 10, 0, 8, 0),))):
        journal.append(encode(entry))
    journal.close()
    recover_orphans(tmp_path, store_then(settle_dead_leases))
    assert process.run(lambda limiter: used(limiter, mine)) == [18]

    lease_id, mine = some_lease(process)
    ledger = UsageLedger(tmp_path, store_dead=store_then(settle_dead_leases))
    ledger.admit(admission(lease_id))
    ledger.checkpoint([(lease_id, 10, 0, 8, 0)])
    ledger.stop()
    assert process.run(lambda limiter: used(limiter, mine)) == [18]


def some_lease(process: Process) -> tuple[str, Rule]:
    """Return the id of a lease of 110 tokens, and its limit, which no other test has."""
    lease_id = uuid.uuid4().hex
    # The id separates this limit from the limits of other users of this Redis.
    mine = replace(rule(Metric.TOKENS, Window.DAY, 1000), id=uuid.uuid4().int)
    asked = request_for(mine, num_input_tokens=10, num_output_tokens=100)
    return process.reserve(structs.replace(asked, lease_id=lease_id)), mine
