"""When a quota runs out, if it is used on as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DAY_S: Final = 86_400.0
BEFORE_S: Final = 7 * DAY_S
"""How far back the last days go."""

# The last days weigh as much as this part of a window: early in it they say more than the few
# requests that there were, later they hardly count.
_WEIGHT: Final = 0.125


@dataclass(frozen=True, slots=True)
class Use:
    """Of a quota. Times are Unix times in seconds.

    `start_s` is when its window began, and None for a quota without one. `num_before` was used
    in the `BEFORE_S` before the window; without one, in those before now.
    """

    amount: int
    num_used: int
    num_before: int = 0
    start_s: float | None = None
    end_s: float | None = None


def runs_out_at(use: Use, now_s: float) -> float | None:
    """The Unix time in seconds; now when nothing is left; None when it lasts until its window
    ends, or for more than a century.

    Use goes on in a straight line, at a pace between that of the window and that of the last
    days, which count as if they were an eighth of a window more. Who used nothing in the last
    days is new, and has the window's pace alone.
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
    """Units in a second."""
    pace_before = use.num_before / BEFORE_S
    if use.start_s is None or use.end_s is None:
        return pace_before
    weight_s = _WEIGHT * (use.end_s - use.start_s) if use.num_before else 0.0
    # Somebody's first minute would tell a wild story.
    elapsed_s = max(now_s - use.start_s, 60.0)
    return (use.num_used + pace_before * weight_s) / (elapsed_s + weight_s)
