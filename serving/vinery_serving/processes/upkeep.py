"""Keeps a process cheap and its pauses short: periodic work, and Python's cycle collector."""

import gc
import time
from collections.abc import Callable
from typing import Final

# A timer may fire a little early, and no work is repeated at once.
_LEAST_PART: Final = 0.2
# Allocations before a young collection; young collections before an older generation is
# collected. Requests create few cycles, so rare and large collections cost less.
_THRESHOLDS: Final = (20_000, 20, 50)


def until_next(interval_s: float, clock: Callable[[], float] = time.monotonic) -> float:
    """How long to sleep, in seconds: to a multiple of the interval, and at most 1.2 intervals. So
    periodic work is done at the same moments as other periodic work of the process. Each time an
    idle process wakes up costs some 0.1 ms, whatever it then does."""
    rest_s = interval_s - clock() % interval_s if interval_s else 0.0
    return rest_s if rest_s >= _LEAST_PART * interval_s else rest_s + interval_s


def freeze_heap() -> None:
    """Exclude all present objects from collections. Call once, after all imports. A process with a
    loaded framework holds some hundred thousand objects, none of which will ever be garbage. A full
    collection visits all of them: no token moves for tens of milliseconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
