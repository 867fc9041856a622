"""What each generation is told to have used.

Ten times a second, and whenever one ends, the counters are read, and what they counted since is
divided: each generation gets the part of the time that the engine worked for it. Time in which
no engine of this machine worked is idle energy, and is no request's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serving.engine.energy.busy import BusyBoard
from serving.engine.energy.costs import StepCosts, Work
from serving.engine.energy.counters import Counter, gpu_counters, package_counters
from serving.engine.energy.share import Share, Totals

logger = logging.getLogger(__name__)

_SAMPLE_INTERVAL_S: Final = 0.1


@dataclass(slots=True)
class Source:
    """Counters, and the engines that share them."""

    counters: Sequence[Counter]
    board: BusyBoard

    def read(self, mine_s: float, elapsed_s: float, now: float) -> tuple[float, float]:
        """The watts of an engine that works, and this engine's part of the idle energy in
        joules, since this was last asked. `mine_s` is how long this engine has worked of it."""
        used_j = sum(counter.read_j() for counter in self.counters)
        worked_s = mine_s + self.board.others_s(now)
        watts = used_j / max(elapsed_s, worked_s)
        idle_j = watts * max(0.0, elapsed_s - worked_s)
        return watts, idle_j / self.board.num_engines


class EnergyMeter:
    """`begin` and `end` around work, `note` after each step. All in the engine's thread."""

    def __init__(
        self, sources: Sequence[Source], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._costs = StepCosts()
        self._working_since: float | None = None
        self._pending: set[Share] = set()
        self._sampled_at = clock()
        self.totals = Totals()

    def begin(self) -> None:
        """There is work from now on, if there was none."""
        if self._working_since is None:
            self._working_since = self._clock()
            for source in self._sources:
                source.board.work(self._working_since)

    def end(self) -> None:
        """There is none any more."""
        now = self._clock()
        self._working_since = None
        for source in self._sources:
            source.board.rest(now)
        if now >= self._sampled_at + _SAMPLE_INTERVAL_S:
            self._sample(now)

    def note(self, works: Sequence[Work], *, is_end: bool) -> None:
        """A step is done, and with it, if `is_end`, one of those in it."""
        now = self._clock()
        step_s = 0.0 if self._working_since is None else now - self._working_since
        # Steps for nobody, by which an engine tries itself, are not anybody's.
        works = [work for work in works if work.generation.connection is not None]
        if works and step_s > 0:
            for work, worked_s in zip(works, self._costs.divide(step_s, works), strict=True):
                share = work.generation.share
                if share is None:
                    share = work.generation.share = Share(self.totals)
                share.pending_s += worked_s
                self._pending.add(share)
        if self._working_since is not None:
            self._working_since = now
        if is_end or now >= self._sampled_at + _SAMPLE_INTERVAL_S:
            self._sample(now)

    def _sample(self, now: float) -> None:
        elapsed_s = now - self._sampled_at
        if elapsed_s <= 0:
            return
        self._sampled_at = now
        mine_s = sum(share.pending_s for share in self._pending)
        watts = 0.0
        for source in self._sources:
            of_source, idle_j = source.read(mine_s, elapsed_s, now)
            watts += of_source
            self.totals.used_j += of_source * mine_s + idle_j
        for share in self._pending:
            share.known_j += share.pending_s * watts
            share.pending_s = 0.0
        if self._pending:
            self.totals.watts = watts
        self._pending.clear()


def find_energy(sysfs: Path, directory: Path, device: str) -> EnergyMeter | None:
    """The meter of an engine on this device, such as GPU.0; None where nothing is counted.
    `directory` is shared by the engines of the machine."""
    found = {"cpu": package_counters(sysfs)}
    if "GPU" in device:
        found["gpu"] = gpu_counters(sysfs)
    try:
        sources = [
            Source(counters, BusyBoard(directory / name))
            for name, counters in found.items()
            if counters
        ]
    except OSError as error:
        logger.warning("energy is not measured: %s", error)
        return None
    return EnergyMeter(sources) if sources else None
