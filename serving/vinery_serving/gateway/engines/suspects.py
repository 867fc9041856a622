"""Which requests may have ended an engine process.

A process that was killed cannot name the request at fault, so all that it ran are suspects. They
go on with the next engine. A request that is the only one there at the ends of two engines is at
fault. Several such requests go on one after the other, each alone until its first new token: the
one whose turn it is when the next engine ends is at fault, and the others did nothing.

Planned ends, and those of engines that ran a request for long, count against no request.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

# So many engines must end under a request before it can be at fault.
_NUM_ENDS: Final = 2
# A request that an engine ran for this long is not suspected of the end before.
_INNOCENT_AFTER_S: Final = 60.0


@dataclass(eq=False, slots=True)
class Run:
    """One request, from its first submission to its end. Times are of the monotonic clock."""

    submitted_at: float = 0.0
    engine: object = None  # that runs it
    num_ends: int = 0
    is_at_fault: bool = False
    has_turn: bool = False


class Suspects:
    """The running requests of one model in this process. Belongs to the event loop."""

    def __init__(self) -> None:
        self._running: set[Run] = set()
        self._turn = asyncio.Lock()

    async def take_turn(self, run: Run) -> None:
        """Wait until no other suspect of two ends runs. Returns at once for other requests."""
        if run.num_ends >= _NUM_ENDS:
            await self._turn.acquire()
            run.has_turn = True

    def submitted(self, run: Run, engine: object = None) -> None:
        run.engine = engine
        run.submitted_at = time.monotonic()
        self._running.add(run)

    def generated(self, run: Run) -> None:
        """Note a new token of a request that has its turn: it is no suspect any more."""
        run.num_ends = 0
        self._end_turn(run)

    def ended(self, run: Run) -> None:
        """Note the end of a request. It may end more than once."""
        self._running.discard(run)
        self._end_turn(run)

    def engine_ended(self, run: Run) -> None:
        """Note that the engine of a request ended without a plan.

        Each of its requests reports that; the first one counts for all.
        """
        if run not in self._running:
            return
        there = {each for each in self._running if each.engine is run.engine}
        self._running -= there
        now = time.monotonic()
        for each in there:
            was_long = now - each.submitted_at >= _INNOCENT_AFTER_S
            each.num_ends = 1 if was_long else each.num_ends + 1
        suspects = [each for each in there if each.num_ends >= _NUM_ENDS]
        if len(suspects) == 1:
            suspects[0].is_at_fault = True
        for each in there:
            self._end_turn(each)

    def _end_turn(self, run: Run) -> None:
        if run.has_turn:
            run.has_turn = False
            self._turn.release()
