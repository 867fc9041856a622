"""Rules and requests with only what a test is about."""

import itertools
from typing import Any

from msgspec import structs

from vinery_accounts.limits.reservations import (
    ActualUsage,
    Denial,
    Lease,
    Limiter,
    ReservationRequest,
)
from vinery_accounts.limits.rules import Metric, Rule, Weekday, Window

_ids = itertools.count(1)


def rule(
    metric: Metric = Metric.TOKENS,
    window: Window = Window.DAY,
    amount: int = 100,
    *,
    scope: str = "key:1",
    time_zone: str = "UTC",
    is_shadow: bool = False,
    week_start: Weekday = Weekday.MONDAY,
) -> Rule:
    return Rule(next(_ids), scope, metric, window, amount, time_zone, is_shadow, week_start)


def slots(amount: int, **more: object) -> Rule:
    return rule(Metric.CONCURRENCY, Window.NONE, amount, **more)  # type: ignore[arg-type]


def request_for(
    *rules: Rule, num_input_tokens: int = 0, num_output_tokens: int = 1, **more: Any
) -> ReservationRequest:
    counts = num_input_tokens, num_output_tokens
    return ReservationRequest(*counts, lease_id=f"req-{next(_ids)}", rules=rules, **more)


def under(lease: Lease, *rules: Rule) -> Lease:
    """The same lease when its rules have other amounts."""
    return structs.replace(lease, request=structs.replace(lease.request, rules=rules))


async def granted(limiter: Limiter, asked: ReservationRequest) -> Lease:
    answer = await limiter.acquire(asked)
    assert isinstance(answer, Lease), answer
    return answer


async def spend(limiter: Limiter, num_tokens: int, *rules: Rule) -> None:
    """Let a request use so many tokens, and end."""
    lease = await granted(limiter, request_for(*rules, num_input_tokens=num_tokens - 1))
    await limiter.settle(lease, ActualUsage(num_tokens - 1, 1))


async def denied(limiter: Limiter, asked: ReservationRequest) -> Denial:
    answer = await limiter.acquire(asked)
    assert isinstance(answer, Denial), answer
    return answer


async def used(limiter: Limiter, *rules: Rule) -> list[int]:
    return [level.num_used for level in await limiter.levels(rules)]
