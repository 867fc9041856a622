"""What part of the engine each lane has used lately.

This distinguishes a burst from overload: what comes at once for an engine that had time to rest
will be served soon, and what comes beside a load that it can hardly serve will not.

Two measures must agree. The tokens of a lane, by the most that the engine has served: until it once
had much to do, this is too high. And the time for which answers ran side by side: this is too high
where each of a few takes long.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from vinery_serving.engine.fair_queue import Lane

# Older tokens and older time count less: by a factor of e after so much time.
TOKENS_S: Final = 12.0
TIME_S: Final = 18.0
# The same for what the engine has served, of which the most is remembered for much longer.
_SERVED_S: Final = 5.0
_PEAK_S: Final = 600.0
# A longer gap between two looks is no measurement.
_MAX_GAP_S: Final = 1.0
_MAX_LANES: Final = 1024
_MAX_REPORTED: Final = 256
# Lanes that used less are not reported.
_LEAST_PART: Final = 0.001


class _Rate:
    """A sum by time, of which older parts count less."""

    __slots__ = ("_at", "_decay_s", "_sum")

    def __init__(self, decay_s: float) -> None:
        self._decay_s = decay_s
        self._sum = 0.0
        self._at = 0.0

    def add(self, value: float, now: float) -> None:
        self._sum = self.per_s(now) * self._decay_s + value
        self._at = now

    def per_s(self, now: float) -> float:
        kept = math.exp(-max(0.0, now - self._at) / self._decay_s)
        return self._sum * kept / self._decay_s


@dataclass(slots=True)
class _Use:
    tokens: _Rate = field(default_factory=lambda: _Rate(TOKENS_S))
    time: _Rate = field(default_factory=lambda: _Rate(TIME_S))

    def part(self, now: float, capacity: float) -> float:
        return min(self.tokens.per_s(now) / capacity, self.time.per_s(now))


class RecentUse:
    """Counts tokens as a wait queue does: what is expected of a request."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, _Use] = {}
        self._served = _Rate(_SERVED_S)
        self._peak = 0.0
        self._peak_at = 0.0
        self._looked_at = 0.0

    def note_admitted(self, lane: Lane, num_tokens: float, now: float) -> None:
        """Note the cost of a request that has got a running slot."""
        self._of(lane).tokens.add(num_tokens, now)

    def note_running(self, lanes: Counter[Lane], now: float, *, is_busy: bool) -> None:
        """Note how many answers of each lane run. `is_busy`: they are several."""
        gap_s, self._looked_at = min(_MAX_GAP_S, now - self._looked_at), now
        for lane, num in lanes.items() if is_busy else ():
            self._of(lane).time.add(gap_s * num / lanes.total(), now)

    def note_served(self, num_tokens: float, now: float, *, is_busy: bool) -> None:
        """Note the cost of a request that has ended. `is_busy`: others ran beside it, so that the
        engine shows what it can do."""
        self._served.add(num_tokens, now)
        if is_busy:
            per_s = self._served.per_s(now)
            if per_s > self.peak(now):
                self._peak, self._peak_at = per_s, now

    def peak(self, now: float) -> float:
        """Return the tokens per second of the engine at its best; 0: it never had much to do."""
        return self._peak * math.exp(-max(0.0, now - self._peak_at) / _PEAK_S)

    def parts(self, now: float, full_per_s: float) -> list[tuple[Lane, float]]:
        """Return the parts of the engine that lanes have used, the largest first.

        `full_per_s` is what it was seen to admit while all slots were in use; 0: not known.
        """
        capacity = max(full_per_s, self.peak(now))
        if not capacity:
            return []
        parts = [(lane, each.part(now, capacity)) for lane, each in self._lanes.items()]
        parts.sort(key=lambda each: -each[1])
        return [each for each in parts if each[1] >= _LEAST_PART][:_MAX_REPORTED]

    def _of(self, lane: Lane) -> _Use:
        if lane not in self._lanes and len(self._lanes) >= _MAX_LANES:
            del self._lanes[next(iter(self._lanes))]
        use = self._lanes.pop(lane) if lane in self._lanes else _Use()
        self._lanes[lane] = use  # the newest last
        return use
