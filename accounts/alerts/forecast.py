"""Forecasts when a quota runs out at the current pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DAY_S: Final = 86_400.0
BEFORE_S: Final = 7 * DAY_S
"""The length of the period before the window that counts for the pace, in seconds."""

# The period before counts as this part of a window. Early in a window it outweighs the few
# requests so far; later it hardly counts.
_WEIGHT: Final = 0.125


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of a quota. Times are Unix times in seconds.

    `start_s` is the start of the window, None for a quota without a window. `num_before` is
    the usage in the `BEFORE_S` before the window, or before now without a window.
    """

    amount: int
    num_used: int
    num_before: int = 0
    start_s: float | None = None
    end_s: float | None = None


def runs_out_at(use: Use, now_s: float) -> float | None:
    """Return the Unix time in seconds at which the quota runs out.

    Returns now if nothing is left, and None if it lasts until its window ends or for more than
    a century. The forecast is linear. The pace is a mean of the window so far and the period
    before it, which counts as an eighth of a window. Without usage before the window, only the
    window counts.
    """
    num_left = use.amount - use.num_used
    if num_left <= 0:
        return now_s
    pace = _pace(use, now_s)
    if pace <= 0 or num_left / pace > 100 * 365 * DAY_S:
        return None
    at_s = now_s + num_left / pace
    return at_s if use.end_s is None or at_s < use.end_s else None


def _pace(use: Use, now_s: float) -> float:
    """Return the pace in units a second."""
    pace_before = use.num_before / BEFORE_S
    if use.start_s is None or use.end_s is None:
        return pace_before
    weight_s = _WEIGHT * (use.end_s - use.start_s) if use.num_before else 0.0
    # The pace of the first minute is not representative.
    elapsed_s = max(now_s - use.start_s, 60.0)
    return (use.num_used + pace_before * weight_s) / (elapsed_s + weight_s)
