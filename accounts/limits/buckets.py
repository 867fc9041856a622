"""A bucket with linear refill, as OpenAI's headers and refusals imply it.

A bucket stores how much of it is used, and when that was so. It holds `amount` units and
refills `amount` units in a period. Used amounts and costs are in grains: here one unit is
as many grains as the period has milliseconds, so that a millisecond refills `amount`
grains, and every sum is one of whole numbers. An empty record is a full bucket.
"""

from __future__ import annotations

from typing import Final

# One level is taken for another that is at most an eighth lower, so that few are remembered.
_NEARLY: Final = (8, 9)

MINUTE_MS = 60_000

# What is used of a bucket may be said of a time that is yet to come, because the clock was set
# back. Until then it does not refill, so that the time that passes twice counts once. But no
# longer than it takes to refill, or a clock that was wrong by a day would stop it for a day.
MOST_AHEAD_MS = MINUTE_MS


def used_after(used: int, amount: int, elapsed_ms: int) -> int:
    """What is still used when time has passed, in grains. A clock set back refills nothing."""
    if elapsed_ms <= 0:
        return used
    return max(0, used - amount * elapsed_ms)


def full_after_s(used: int, amount: int) -> float | None:
    """Until nothing is used: (limit - remaining) / (limit / period). None: never."""
    if used <= 0:
        return 0.0
    return used / amount / 1000 if amount else None


def wait_s(used: int, cost: int, amount: int, period_ms: int = MINUTE_MS) -> float | None:
    """Until a cost fits: (used + requested - limit) / (limit / period). None: never."""
    capacity = amount * period_ms
    if cost > capacity:
        return None
    return full_after_s(used + cost - capacity, amount)


class Lows:
    """How far a bucket has drained since each of the reservations of it.

    What was reserved and not used drains as all the rest does: with and without it a bucket
    drains alike, until it would have been empty without it. So no more of it is there to be
    given back than the lowest level since, and what is given back was missing from all levels
    since.

    Additions have numbers that rise. Remembered are the levels just before additions, as far
    as none after them was as low: (number, level), both rising. Where nothing has drained since
    the addition before, the level is that addition at least, and need not be noted. Where a
    level is taken for a lower one, less is given back, and never more.
    """

    __slots__ = ("_lows",)

    def __init__(self) -> None:
        self._lows: list[tuple[int, int]] = []

    def note(self, number: int, level: int) -> None:
        """So much is used just before this addition."""
        if not level:
            self._lows = [(number, 0)]
            return
        lows = self._lows
        while lows and lows[-1][1] >= level:
            lows.pop()
        if lows and level * _NEARLY[0] <= lows[-1][1] * _NEARLY[1]:
            level = lows.pop()[1]
        lows.append((number, level))

    def give_back(self, number: int, unused: int, used: int) -> int:
        """How much is there of what was reserved by an addition and not used, when so much of
        the bucket is used. It counts as given back."""
        lows = self._lows
        given = unused if unused < used else used
        first = len(lows)
        while first and lows[first - 1][0] > number:
            first -= 1
        if first < len(lows):
            given = min(given, lows[first][1])
            since = [(later, level - given) for later, level in lows[first:]]
            while first and lows[first - 1][1] >= since[0][1]:
                first -= 1
            lows[first:] = since
        return given
