"""Which frames of a video are taken."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

_UNKNOWN_RATE: Final = 1.0


def evenly(num_frames: int, max_frames: int) -> list[int]:
    """Return the indexes of at most `max_frames` frames: the first, the last, and those between in
    equal steps."""
    if num_frames <= max_frames:
        return list(range(num_frames))
    if max_frames == 1:
        return [0]
    last = max_frames - 1
    return [round(Fraction(step * (num_frames - 1), last)) for step in range(max_frames)]


def rate_of(times_s: Sequence[float]) -> float:
    """Return frames in a second, for the times of at least one frame."""
    duration_s = times_s[-1] - times_s[0]
    return (len(times_s) - 1) / duration_s if duration_s > 0 else _UNKNOWN_RATE
