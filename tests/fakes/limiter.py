"""The limiter of all tests: a memory limiter behind faults that a test switches on."""

import asyncio
import time
from collections.abc import Callable, Sequence

from vinery_accounts.limits import reservations
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.rules import Rule


class FakeLimiter:
    """A `Limiter` like the one on Redis that also records the baselines."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.inner = MemoryLimiter(clock=clock)
        self.is_unavailable = False  # each call raises `LimitsUnavailable`
        self.hangs = False  # no call returns
        self.loses_answers = False  # a reservation is made, and the call does not return
        self.num_calls = 0
        self.restored: list[reservations.UsageBaseline] = []

    def forget(self) -> None:
        """Lose all memory, as a server does that restarts without its data."""
        self.inner = MemoryLimiter(clock=self._clock)

    async def acquire(
        self, request: reservations.ReservationRequest
    ) -> reservations.Lease | reservations.Denial:
        await self._call()
        answer = await self.inner.acquire(request)
        if self.loses_answers:
            await asyncio.Event().wait()
        return answer

    async def extend(self, lease: reservations.Lease, num_output_tokens: int) -> reservations.Grant:
        await self._call()
        return await self.inner.extend(lease, num_output_tokens)

    async def settle(self, lease: reservations.Lease, usage: reservations.ActualUsage) -> None:
        await self._call()
        await self.inner.settle(lease, usage)

    async def renew(self, leases: Sequence[reservations.Lease]) -> None:
        await self._call()
        await self.inner.renew(leases)

    async def release(self, lease_ids: Sequence[str]) -> None:
        await self._call()
        await self.inner.release(lease_ids)

    async def levels(self, rules: Sequence[Rule]) -> tuple[reservations.Level, ...]:
        await self._call()
        return await self.inner.levels(rules)

    async def restore(self, baselines: Sequence[reservations.UsageBaseline]) -> None:
        await self._call()
        self.restored += baselines
        await self.inner.restore(baselines)

    async def _call(self) -> None:
        self.num_calls += 1
        await asyncio.sleep(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.is_unavailable:
            raise reservations.LimitsUnavailable("the fake limiter is unavailable")
