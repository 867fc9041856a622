"""When periodic work is done: at the same moments as other periodic work of the process.

Each time an idle process wakes up costs some 0.1 ms, whatever it then does.
"""

import time
from collections.abc import Callable
from typing import Final

# A timer may fire a little early, and no work is repeated at once.
_LEAST_PART: Final = 0.2


def until_next(interval_s: float, clock: Callable[[], float] = time.monotonic) -> float:
    """How long to sleep, in seconds: to a multiple of the interval, and at most 1.2 intervals."""
    rest_s = interval_s - clock() % interval_s if interval_s else 0.0
    return rest_s if rest_s >= _LEAST_PART * interval_s else rest_s + interval_s
