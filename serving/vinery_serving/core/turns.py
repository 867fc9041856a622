"""Gives keys their turns at a few slots.

The next slot goes to the key that has the fewest of them, and among these to the one whose last
turn was longest ago. No key has all slots, so that one is free for a client who comes later.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from vinery_serving.core.errors import LimitReached, Overloaded

# The wait queue of all keys together is so many times as long as that of one.
_NUM_LONG_QUEUES: Final = 4
_RETRY_AFTER_S: Final = 2


@dataclass(frozen=True, slots=True)
class TurnMessages:
    """What clients read whose calls do not get a turn."""

    late: str
    crowded: str  # all keys together wait too often
    too_many: str  # of one key; `{num}` is their number


@dataclass(slots=True)
class _Lane:
    """The calls of one key."""

    num_running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class FairTurns:
    def __init__(
        self,
        num_slots: int,
        *,
        max_waiting: int,
        wait_s: float,
        messages: TurnMessages,
        max_each: int | None = None,
    ) -> None:
        """`max_waiting`: of each key. `wait_s`: how long each waits at most. `max_each`: slots of
        each key; None: all but one."""
        self._num_slots = num_slots
        self._max_each = max(1, num_slots - 1) if max_each is None else max_each
        self._messages = messages
        self._max_waiting = max_waiting
        self._wait_s = wait_s
        # In the order of their last turns.
        self._lanes: dict[Hashable, _Lane] = {}
        self.num_running = 0
        self.num_waiting = 0

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Hold a slot. Raises `LimitReached` if too many of this key wait, `Overloaded` if too
        many of all wait or this one has waited too long."""
        await self._begin(key)
        try:
            yield
        finally:
            self._end(key)

    async def _begin(self, key: Hashable) -> None:
        lane = self._lanes.setdefault(key, _Lane())
        if self.num_running < self._num_slots and lane.num_running < self._max_each:
            self._start(key, lane)
            return
        self._check_queue(lane)
        granted = asyncio.get_running_loop().create_future()
        lane.waiting.append(granted)
        self.num_waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await granted
        except (TimeoutError, asyncio.CancelledError) as error:
            self._leave(key, lane, granted)
            if isinstance(error, TimeoutError):
                raise Overloaded(self._messages.late) from None
            raise

    def _check_queue(self, lane: _Lane) -> None:
        if self.num_waiting >= _NUM_LONG_QUEUES * self._max_waiting:
            raise Overloaded(self._messages.crowded)
        if len(lane.waiting) >= self._max_waiting:
            raise LimitReached(
                self._messages.too_many.format(num=self._max_waiting),
                type_="requests",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(_RETRY_AFTER_S)},
            )

    def _leave(self, key: Hashable, lane: _Lane, granted: asyncio.Future[None]) -> None:
        """End a wait without using its turn."""
        if granted.done() and not granted.cancelled():
            self._end(key)
            return
        if granted in lane.waiting:
            lane.waiting.remove(granted)
            self.num_waiting -= 1
        self._forget_idle(key, lane)

    def _start(self, key: Hashable, lane: _Lane) -> None:
        lane.num_running += 1
        self.num_running += 1
        self._lanes[key] = self._lanes.pop(key)  # to the end

    def _end(self, key: Hashable) -> None:
        lane = self._lanes[key] = self._lanes.pop(key)  # to the end, behind those that wait
        lane.num_running -= 1
        self.num_running -= 1
        self._forget_idle(key, lane)
        self._grant_next()

    def _forget_idle(self, key: Hashable, lane: _Lane) -> None:
        if not lane.num_running and not lane.waiting:
            self._lanes.pop(key, None)

    def _grant_next(self) -> None:
        while self.num_running < self._num_slots:
            ready = [
                (key, lane)
                for key, lane in self._lanes.items()
                if lane.waiting and lane.num_running < self._max_each
            ]
            if not ready:
                return
            key, lane = min(ready, key=lambda each: each[1].num_running)
            granted = lane.waiting.popleft()
            self.num_waiting -= 1
            if not granted.cancelled():  # its client may have left, and not run yet
                self._start(key, lane)
                granted.set_result(None)
