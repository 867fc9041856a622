"""Gives keys their turns at a few slots.

The next slot goes to the key with the fewest slots; among equal keys, to the key whose last turn
was longest ago. So a key with many calls does not hold up a key with few.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from vinery_serving.core.errors import LimitReached, Overloaded, ServingError

# The wait queue of all keys together is this many times as long as the queue of a key.
_NUM_LONG_QUEUES: Final = 4
_RETRY_AFTER_S: Final = 2


class NoTurn(Enum):
    LATE = auto()  # the call has waited too long
    CROWDED = auto()  # all keys together wait too often
    TOO_MANY = auto()  # this key waits too often


@dataclass(frozen=True, slots=True)
class TurnMessages:
    late: str
    crowded: str
    too_many: str  # `{num}` is the number that may wait

    def __call__(self, why: NoTurn, num: float) -> ServingError:
        if why is not NoTurn.TOO_MANY:
            return Overloaded(self.late if why is NoTurn.LATE else self.crowded)
        return LimitReached(
            self.too_many.format(num=num),
            type_="requests",
            code="rate_limit_exceeded",
            headers={"Retry-After": str(_RETRY_AFTER_S)},
        )


_UNLIMITED: Final = TurnMessages("", "", "")  # Without limits no call is refused


@dataclass(eq=False, slots=True)
class _Lane:
    key: Hashable
    num_running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class FairTurns:
    """Belongs to the event loop. A turn costs as much for thousands of keys as for one."""

    def __init__(
        self,
        num_slots: int,
        *,
        refuse: Callable[[NoTurn, float], ServingError] = _UNLIMITED,
        max_waiting: float = math.inf,
        max_waiting_in_all: float | None = None,
        wait_s: float | None = None,
        max_each: int | None = None,
    ) -> None:
        """`max_waiting`: of each key; in all, four times as many. `wait_s`: the longest wait of a
        call. `max_each`: slots of each key; None: all slots but one, which stays free for another
        client. `refuse` returns the error of a call that gets no turn."""
        self._num_slots = num_slots
        self._max_each = max(1, num_slots - 1) if max_each is None else max_each
        self._refuse, self._max_waiting = refuse, max_waiting
        in_all = max_waiting_in_all
        self._max_in_all = _NUM_LONG_QUEUES * max_waiting if in_all is None else in_all
        self._wait_s = wait_s
        self._lanes: dict[Hashable, _Lane] = {}
        # The lanes by their number of slots, each in the order of the last turns.
        self._by_slots: list[OrderedDict[Hashable, _Lane]] = [
            OrderedDict() for _ in range(self._max_each + 1)
        ]
        self.num_running = self.num_waiting = 0

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Hold a slot. Raises what `refuse` returns."""
        await self.begin(key)
        try:
            yield
        finally:
            self.end(key)

    def begin_now(self, key: Hashable) -> bool:
        """Take a free slot, which `end` gives back. Returns False without a free slot."""
        lane = self._lanes.get(key)
        num_own = 0 if lane is None else lane.num_running
        if self.num_running >= self._num_slots or num_own >= self._max_each:
            return False
        self._start(lane or self._new_lane(key))
        return True

    async def begin(self, key: Hashable) -> None:
        """Wait for a slot, which `end` gives back. Raises what `refuse` returns."""
        if self.begin_now(key):
            return
        if self.num_waiting >= self._max_in_all:
            raise self._refuse(NoTurn.CROWDED, self._max_in_all)
        lane = self._lanes.get(key)
        if (0 if lane is None else len(lane.waiting)) >= self._max_waiting:
            raise self._refuse(NoTurn.TOO_MANY, self._max_waiting)
        lane = lane or self._new_lane(key)
        granted = asyncio.get_running_loop().create_future()
        lane.waiting.append(granted)
        self.num_waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await granted
        except (TimeoutError, asyncio.CancelledError) as error:
            self._leave(lane, granted)
            if isinstance(error, TimeoutError):
                raise self._refuse(NoTurn.LATE, self._max_waiting) from None
            raise

    def end(self, key: Hashable) -> None:
        """Give a slot back. Does nothing if `end_all` has ended the turn."""
        lane = self._lanes.get(key)
        if lane is not None and lane.num_running:
            self.num_running -= 1
            self._move(lane, lane.num_running - 1)
            self._grant_next()

    def end_all(self) -> None:
        running = [lane for lanes in self._by_slots[1:] for lane in lanes.values()]
        self.num_running = 0
        for lane in running:
            self._move(lane, 0)
        self._grant_next()

    def _leave(self, lane: _Lane, granted: asyncio.Future[None]) -> None:
        if granted.done() and not granted.cancelled():
            self.end(lane.key)
            return
        if granted in lane.waiting:
            lane.waiting.remove(granted)
            self.num_waiting -= 1
        self._forget_idle(lane)

    def _new_lane(self, key: Hashable) -> _Lane:
        lane = self._lanes[key] = self._by_slots[0][key] = _Lane(key)
        return lane

    def _start(self, lane: _Lane) -> None:
        self.num_running += 1
        self._move(lane, lane.num_running + 1)

    def _move(self, lane: _Lane, num_running: int) -> None:
        """Put a lane behind the other lanes with so many slots."""
        del self._by_slots[lane.num_running][lane.key]
        lane.num_running = num_running
        self._by_slots[num_running][lane.key] = lane
        self._forget_idle(lane)

    def _forget_idle(self, lane: _Lane) -> None:
        is_known = self._lanes.get(lane.key) is lane
        if is_known and not lane.num_running and not lane.waiting:
            del self._lanes[lane.key], self._by_slots[0][lane.key]

    def _grant_next(self) -> None:
        while self.num_running < self._num_slots and (lane := self._next()) is not None:
            granted = lane.waiting.popleft()
            self.num_waiting -= 1
            if granted.cancelled():  # the client has left, and the waiting task has not run yet
                self._forget_idle(lane)
                continue
            self._start(lane)
            granted.set_result(None)

    def _next(self) -> _Lane | None:
        """Return the lane that has the next turn. Few lanes without waiting calls are passed."""
        lanes = (lane for each in self._by_slots[: self._max_each] for lane in each.values())
        return next((lane for lane in lanes if lane.waiting), None)
