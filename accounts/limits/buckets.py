"""A bucket with linear refill, as OpenAI's headers and refusals imply it.

A bucket stores how much of it is used, and when that was so. It holds `amount` units and
refills `amount` units in a period. Used amounts and costs are in grains: here one unit is
as many grains as the period has milliseconds, so that a millisecond refills `amount`
grains, and every sum is one of whole numbers. An empty record is a full bucket.
"""

from __future__ import annotations

MINUTE_MS = 60_000


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
