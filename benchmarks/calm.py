"""Whether other programs use the machine: before each part, the benchmark waits until they do not.

Ratios are of runs side by side, but a machine that is busy for one round and not for the next makes
them waver by tenths. A machine that does not calm down is measured all the same, and the report
states it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psutil

from benchmarks.progress import show

# Part of all cores that other programs use, above which ratios waver.
MAX_BUSY: Final = 0.10
_LOOK_S: Final = 2.0
_MAX_WAIT_S: Final = 120.0


@dataclass(frozen=True)
class Calm:
    """How busy the machine was before a part, 0..1 of all cores, after waiting."""

    part: str
    waited_s: float
    busy: float

    @property
    def is_calm(self) -> bool:
        return self.busy <= MAX_BUSY


def wait_until_calm(
    part: str,
    *,
    max_wait_s: float = _MAX_WAIT_S,
    busy_for: Callable[[float], float] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Calm:
    """Wait until other programs use at most `MAX_BUSY` of the machine, or the time is over.

    `busy_for` measures for some seconds how busy the machine is, 0..1.
    """
    measure = busy_for or _busy_for
    began_s = clock()
    busy = measure(_LOOK_S)
    if busy > MAX_BUSY:
        show(f"{part}: other programs use {busy:.0%} of the machine, waiting")
    while busy > MAX_BUSY and clock() - began_s < max_wait_s:
        busy = measure(_LOOK_S)
    calm = Calm(part, clock() - began_s, busy)
    if not calm.is_calm:
        show(f"{part}: the machine is still busy, so its figures waver")
    return calm


def _busy_for(seconds: float) -> float:
    return psutil.cpu_percent(interval=seconds) / 100
