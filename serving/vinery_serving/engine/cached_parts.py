"""What part of its prompts the prefix cache had of each lane lately.

So more than one cached prompt can be added for a step. Each lane has an estimate of its own:
otherwise prompts of one key that are never cached pass for short ones beside those of another that
always are, and dozens of them are computed before those of other keys.
"""

from collections import OrderedDict
from typing import Final

from vinery_serving.engine.fair_queue import Lane

# How much the newest prompt counts.
_NEWEST_PART: Final = 0.2
# However much was cached before: a key that has repeated one prompt may send another.
_LEAST_UNCACHED: Final = 1 / 8
_MAX_LANES: Final = 1024


class CachedParts:
    def __init__(self) -> None:
        self._uncached: OrderedDict[Lane, float] = OrderedDict()  # the most recent last

    def uncached(self, lane: Lane) -> float:
        """Return the part that must be expected to be computed of the lane's next prompt."""
        return max(_LEAST_UNCACHED, self._uncached.get(lane, 1.0))

    def note(self, lane: Lane, *, num_cached: int, num_tokens: int) -> None:
        """Note how much of a prompt the cache had, of so many tokens that were not known to be in
        it."""
        uncached = 1 - min(1.0, max(0, num_cached) / max(1, num_tokens))
        before = self._uncached.pop(lane, 1.0)
        self._uncached[lane] = before + _NEWEST_PART * (uncached - before)
        if len(self._uncached) > _MAX_LANES:
            self._uncached.popitem(last=False)
