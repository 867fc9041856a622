"""Keeps Python's cycle collector out of the token path.

A process that has loaded a framework holds some hundred thousand objects, and every full
collection walks all of them: tens of milliseconds in which no token moves, and a tenth of
the time of a busy process. None of these objects will ever be garbage.
"""

from __future__ import annotations

import gc
from typing import Final

# Allocations before a young collection, and young ones before older generations are looked
# at. Requests make few cycles, so rare collections of more objects cost less than many.
_THRESHOLDS: Final = (20_000, 20, 50)


def freeze_heap() -> None:
    """Call once when everything is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
