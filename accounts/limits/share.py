"""A limiter that has a share of every amount, for web processes without a common store.

Together the processes never grant more than the amount. One process cannot use what the others
leave. A process that starts cannot know which process has used what the usage records have. So it
takes over an equal part of that, while the others keep what they have left: each start of a single
process may grant up to a share more. A process has a share of at least one, or an amount smaller
than the number of processes would be of no use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from msgspec import structs

from accounts.limits.memory import MemoryLimiter
from accounts.limits.reservations import (
    ActualUsage,
    Denial,
    Grant,
    Lease,
    Level,
    ReservationRequest,
    UsageBaseline,
)
from accounts.limits.rules import CacheByIdentity, Rule


class ShareLimiter:
    """`Limiter` in front of this process's limiter. Its levels are those of the shares."""

    def __init__(self, limiter: MemoryLimiter, num_processes: int) -> None:
        """Raises ValueError for a number of processes less than one."""
        if num_processes < 1:
            raise ValueError("num_processes must be at least 1")
        self._limiter = limiter
        self._num_processes = num_processes
        self._shares_of_request = CacheByIdentity(self._shares)

    async def acquire(self, request: ReservationRequest) -> Lease | Denial:
        """See `Limiter`. The lease has the rules with the whole amounts, as one of Redis has."""
        shares = structs.replace(request, rules=self._shares_of_request(request.rules))
        answer = await self._limiter.acquire(shares)
        if isinstance(answer, Denial):
            return answer
        return structs.replace(answer, request=request)

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        return await self._limiter.extend(self._share_of_lease(lease), num_output_tokens)

    async def settle(self, lease: Lease, usage: ActualUsage) -> None:
        self.settle_now(lease, usage)

    def settle_now(self, lease: Lease, usage: ActualUsage) -> None:
        self._limiter.settle_now(self._share_of_lease(lease), usage)

    async def renew(self, leases: Sequence[Lease]) -> None:
        await self._limiter.renew(leases)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        return await self._limiter.levels(self._shares(rules))

    async def restore(self, baselines: Sequence[UsageBaseline]) -> None:
        """See `Limiter`. Each process takes over a share of what is used. A process that has
        received a baseline before has counted its own use since: it keeps what is left of its
        share, unless less is left in all."""
        await self._limiter.restore([self._share_of_baseline(each) for each in baselines])

    def _share_of_baseline(self, baseline: UsageBaseline) -> UsageBaseline:
        rule = share_of(baseline.rule, self._num_processes)
        if baseline.is_update:
            num_used = max(0, rule.amount - max(0, baseline.rule.amount - baseline.num_used))
        else:
            num_used = -(-baseline.num_used // self._num_processes)
        return structs.replace(baseline, rule=rule, num_used=num_used)

    def _share_of_lease(self, lease: Lease) -> Lease:
        request = lease.request
        shares = structs.replace(request, rules=self._shares_of_request(request.rules))
        return structs.replace(lease, request=shares)

    def _shares(self, rules: Sequence[Rule]) -> tuple[Rule, ...]:
        return tuple(share_of(rule, self._num_processes) for rule in rules)


@lru_cache(maxsize=65_536)
def share_of(rule: Rule, num_processes: int) -> Rule:
    """Return the rule with an equal share of its amount."""
    return replace(rule, amount=max(min(1, rule.amount), rule.amount // num_processes))
