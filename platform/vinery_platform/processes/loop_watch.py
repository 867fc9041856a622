"""A watch on the event loop: which code blocks it for longer than 100 ms.

While a request runs, and for two seconds after, the loop ticks. Without ticks a thread notes where
the loop's thread is: files, lines and names of functions, no values. The watch does not blame a
loop without a processor, also if a virtual machine had none itself, nor a suspended process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from types import FrameType
from typing import Final

from vinery_serving.gateway.engines.meter import Histogram

log = logging.getLogger(__name__)

_INTERVAL_S: Final = 0.05
# A block counts from here.
MIN_BLOCK_S: Final = 0.1
_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# At most one line in this time, about the longest block since the last line.
_LOG_INTERVAL_S: Final = 2.0
_MAX_FRAMES: Final = 12
# The part of its usual rounds in which the watching thread must have run to be a witness.
_WITNESS: Final = 0.3
# So many ticks after the last request, the watch pauses.
_TICKS_AFTER_REQUESTS: Final = 40

_STAT: Final = Path("/proc/stat")
# Columns of a processor, without the next one, the stolen time that the hypervisor reports.
_NUM_COLUMNS: Final = 7
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
# Short work between two ticks is added up as none or as a whole one.
_NOISE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Times:
    """The readings of one moment, in seconds."""

    now_s: float
    cpu_s: float  # of all threads of the process
    ran_s: float  # for how long the loop's thread has computed so far
    waited_s: float  # for how long it has waited for a processor so far
    num_looks: int  # of the watching thread so far


def blocked_s(before: Times, after: Times) -> float:
    """For how long the loop's own work, or the process's, held up a tick that was due."""
    late_s = after.now_s - before.now_s - _INTERVAL_S
    own_s = late_s - (after.waited_s - before.waited_s)
    num_due = late_s / _INTERVAL_S
    if after.num_looks - before.num_looks < _WITNESS * num_due:
        # No other thread ran either: something kept the interpreter's lock and computed, or the
        # whole process stood still.
        own_s = min(own_s, after.cpu_s - before.cpu_s)
    return max(own_s, 0.0)


class StolenTime:
    """The time that a hypervisor has taken since the last `mark`, whether it reports that or not:
    then the clocks of processors do not tick, whose ticks the kernel adds up in /proc/stat. Any
    thread may call the methods."""

    def __init__(self, stat: Path = _STAT, clock: Callable[[], float] = time.monotonic) -> None:
        self._stat = stat
        self._clock = clock
        self._marked: tuple[float, tuple[float, ...]] = clock(), ()

    def mark(self) -> None:
        self._marked = self._read()

    def since_mark_s(self) -> float:
        """The most that was taken from one processor. 0 if it is too little to be known."""
        (marked_s, before), (now_s, after) = self._marked, self._read()
        if len(before) != len(after):  # one came or left
            return 0.0
        passed_s = now_s - marked_s
        pairs = zip(before, after, strict=True)
        most_s = max((passed_s - (late - early) for early, late in pairs), default=0.0)
        return min(most_s, passed_s) if most_s > _NOISE_S else 0.0

    def _read(self) -> tuple[float, tuple[float, ...]]:
        """The time, and that of each processor, in seconds. Empty: unknown."""
        now_s = self._clock()
        try:
            known_s = tuple(_processor_times_s(self._stat.read_bytes()))
        except (OSError, ValueError):  # another system
            return now_s, ()
        # A sandbox that imitates Linux may have zeros only.
        return now_s, known_s if any(known_s) else ()


def _processor_times_s(stat: bytes) -> Iterator[float]:
    """The time of each processor. The first line of `stat` is the sum."""
    for line in stat.splitlines()[1:]:
        name, *columns = line.split(maxsplit=_NUM_COLUMNS + 1)[: _NUM_COLUMNS + 1]
        if not name.startswith(b"cpu"):
            return
        yield sum(map(int, columns)) * _TICK_S


class LoopWatch:
    """Call `begin` once, and `enter` and `leave` for each request, in the event loop."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, stolen: StolenTime | None = None
    ) -> None:
        self.blocks = Histogram(_BOUNDS_S)
        self._clock = clock
        self._stolen = stolen or StolenTime()
        self._schedstat: int | None = None
        self._thread_id = 0
        self._num_looks = 0
        self._last: Times | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._num_requests = 0
        self._ticks_left = 0
        self._is_ticking = threading.Event()
        self._stack = ""  # of the present or last block
        self._longest_s, self._longest_stack, self._num_unlogged = 0.0, "", 0
        self._longest_ran_s = 0.0
        self._logged_at = -_LOG_INTERVAL_S

    def begin(self) -> None:
        """Tick in the running loop, and watch it from a thread."""
        self._thread_id = threading.get_ident()
        try:
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._schedstat = os.open(path, os.O_RDONLY)
        except OSError:  # another system: a busy machine is blamed on the loop
            self._schedstat = None
        self._loop = asyncio.get_running_loop()
        self._resume()
        threading.Thread(target=self._look_again, name="loop-watch", daemon=True).start()

    def enter(self) -> None:
        self._num_requests += 1
        if not self._is_ticking.is_set():
            self._resume()

    def leave(self) -> None:
        self._num_requests -= 1

    def _resume(self) -> None:
        if self._loop is None:
            return
        self._ticks_left = _TICKS_AFTER_REQUESTS
        self._last = self._read()
        self._is_ticking.set()
        self._loop.call_later(_INTERVAL_S, self._tick)

    def tick(self, times: Times) -> None:
        last, self._last = self._last, times
        stack, self._stack = self._stack, ""
        if last is not None and (length_s := self._blocked_s(last, times)) > MIN_BLOCK_S:
            self.blocks.count(length_s * 1000)
            self._num_unlogged += 1
            if length_s > self._longest_s:
                self._longest_s, self._longest_stack = length_s, stack
                self._longest_ran_s = min(times.ran_s - last.ran_s, length_s)
        if self._num_unlogged and times.now_s - self._logged_at >= _LOG_INTERVAL_S:
            self._log(times.now_s)

    def look(self) -> None:
        """Called by the watching thread: remember where the loop is if it is late."""
        self._num_looks += 1
        last = self._last
        if last is None:
            return
        since_tick_s = self._clock() - last.now_s
        if since_tick_s < _INTERVAL_S:
            self._stolen.mark()
        if since_tick_s < _INTERVAL_S + MIN_BLOCK_S:
            return
        frame = sys._current_frames().get(self._thread_id)
        if frame is not None:
            self._stack = stack_of(frame)

    def _blocked_s(self, last: Times, times: Times) -> float:
        length_s = blocked_s(last, times)
        return length_s - self._stolen.since_mark_s() if length_s > MIN_BLOCK_S else length_s

    def _log(self, now_s: float) -> None:
        log.warning(
            "the event loop stood still for %.0f ms and computed for %.0f ms of it at %s%s",
            *(self._longest_s * 1000, self._longest_ran_s * 1000),
            self._longest_stack or "an unknown line",
            f"; {self._num_unlogged - 1} more since" if self._num_unlogged > 1 else "",
        )
        self._longest_s, self._longest_stack, self._num_unlogged = 0.0, "", 0
        self._logged_at = now_s

    def _tick(self) -> None:
        self.tick(self._read())
        is_busy = self._num_requests or self._num_unlogged
        self._ticks_left = _TICKS_AFTER_REQUESTS if is_busy else self._ticks_left - 1
        if self._ticks_left and self._loop is not None:
            self._loop.call_later(_INTERVAL_S, self._tick)
        else:
            self._last = None
            self._is_ticking.clear()

    def _look_again(self) -> None:
        while True:
            if not self._is_ticking.is_set():
                self._is_ticking.wait()
                self._stolen.mark()
            time.sleep(_INTERVAL_S)
            self.look()

    def _read(self) -> Times:
        ran_s, waited_s = 0.0, 0.0
        if self._schedstat is not None:
            ran_ns, waited_ns, _ = os.pread(self._schedstat, 80, 0).split()
            ran_s, waited_s = int(ran_ns) / 1e9, int(waited_ns) / 1e9
        return Times(self._clock(), time.process_time(), ran_s, waited_s, self._num_looks)


def stack_of(frame: FrameType) -> str:
    """Where a thread is, the innermost function first."""
    return " < ".join(
        f"{'/'.join(PurePath(each.f_code.co_filename).parts[-3:])}:{line} {each.f_code.co_name}"
        for each, line in islice(traceback.walk_stack(frame), _MAX_FRAMES)
    )


# The watch of this process's loop.
loop_watch: Final = LoopWatch()
