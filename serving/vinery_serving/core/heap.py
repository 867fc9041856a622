"""Settings of Python's cycle collector that keep it out of the token path.

A process with a loaded framework holds some hundred thousand objects. A full collection
visits all of them: no token moves for tens of milliseconds, and a busy process spends a tenth
of its time there. None of these objects will ever be garbage.
"""

import gc
from typing import Final

# Allocations before a young collection; young collections before an older generation is
# collected. Requests create few cycles, so rare and large collections cost less.
_THRESHOLDS: Final = (20_000, 20, 50)


def freeze_heap() -> None:
    """Exclude all present objects from collections. Call once, after all imports."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
