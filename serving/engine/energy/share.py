"""The energy of one generation, as it grows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Totals:
    """Of an engine. `used_j` is its part of all that the machine used, `told_j` the part of
    that which its requests were told of; the rest is idle energy."""

    used_j: float = 0.0
    told_j: float = 0.0
    watts: float = 0.0  # while it works, by the newest reading


@dataclass(slots=True, eq=False)
class Share:
    """What one generation has used so far, in joules."""

    totals: Totals
    known_j: float = 0.0
    pending_s: float = 0.0  # of work that is not in `known_j` yet
    _told_j: float = 0.0

    def tell(self) -> float:
        """What is new since this was last asked. Pending work is estimated, which the next
        answer corrects."""
        new_j = max(0.0, self.known_j + self.pending_s * self.totals.watts - self._told_j)
        self._told_j += new_j
        self.totals.told_j += new_j
        return new_j
