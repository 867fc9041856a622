"""A limiter that has only its share of every amount: one of several web processes.

For processes that have no store in common. While all of them live they never grant more
together than there is; one alone cannot use what the others leave. A process that starts cannot
know whose use the books tell, and takes over an equal part of it, while the others go on with
what they have left: so with each start of one alone up to a share more may be granted. An amount
smaller than their number is still one for each of them, or nobody could use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from msgspec import structs

from accounts.limits.leases import Denial, Floor, Grant, Lease, Level
from accounts.limits.memo import ByIdentity
from accounts.limits.memory import MemoryLimiter
from accounts.limits.rules import Claim, Rule, Spent


class ShareLimiter:
    """`Limiter` in front of that of this process. What it tells of levels is of the shares."""

    def __init__(self, limiter: MemoryLimiter, num_processes: int) -> None:
        """Raises ValueError when there are no processes to share between."""
        if num_processes < 1:
            raise ValueError("num_processes must be at least 1")
        self._limiter = limiter
        self._num_processes = num_processes
        self._shares_of_claim = ByIdentity(self._shares)

    async def acquire(self, claim: Claim) -> Lease | Denial:
        """See `Limiter`."""
        answer = await self._limiter.acquire(self._share(claim))
        # A lease tells the whole amounts, as that of a store does.
        return answer if isinstance(answer, Denial) else structs.replace(answer, claim=claim)

    async def extend(self, lease: Lease, num_output_tokens: int) -> Grant:
        """See `Limiter`."""
        return await self._limiter.extend(self._share_of_lease(lease), num_output_tokens)

    async def settle(self, lease: Lease, spent: Spent) -> None:
        """See `Limiter`."""
        self.settle_now(lease, spent)

    def settle_now(self, lease: Lease, spent: Spent) -> None:
        """The same for those who cannot await it, or need not."""
        self._limiter.settle_now(self._share_of_lease(lease), spent)

    async def renew(self, leases: Sequence[Lease]) -> None:
        """See `Limiter`."""
        await self._limiter.renew(leases)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        """See `Limiter`: of the shares."""
        return await self._limiter.levels(self._shares(rules))

    async def restore(self, floors: Sequence[Floor]) -> None:
        """See `Limiter`: everybody takes over a share of what is used. Who has heard of it before
        has counted its own since; it may still use what is left in all."""
        await self._limiter.restore([self._share_of_floor(floor) for floor in floors])

    def _share_of_floor(self, floor: Floor) -> Floor:
        rule = share_of(floor.rule, self._num_processes)
        if floor.is_again:
            num_used = max(0, rule.amount - max(0, floor.rule.amount - floor.num_used))
        else:
            num_used = -(-floor.num_used // self._num_processes)
        return structs.replace(floor, rule=rule, num_used=num_used)

    def _share_of_lease(self, lease: Lease) -> Lease:
        return structs.replace(lease, claim=self._share(lease.claim))

    def _share(self, claim: Claim) -> Claim:
        return structs.replace(claim, rules=self._shares_of_claim(claim.rules))

    def _shares(self, rules: Sequence[Rule]) -> tuple[Rule, ...]:
        return tuple(share_of(rule, self._num_processes) for rule in rules)


@lru_cache(maxsize=65_536)
def share_of(rule: Rule, num_processes: int) -> Rule:
    """The same rule with an equal share of its amount."""
    return replace(rule, amount=max(min(1, rule.amount), rule.amount // num_processes))
