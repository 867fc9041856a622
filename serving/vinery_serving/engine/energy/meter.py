"""Divides the energy that the host's counters report among generations and idle energy.

Ten times a second, and whenever a generation ends, the counters are read. Each generation gets a
part of what they counted, in proportion to the seconds that the engine worked for it. Energy of
the time in which no engine of the host worked is idle energy.

The seconds of a step are divided by the tokens in it. Prefilling a token and decoding one take
very different times, which depend on the model and the machine. `StepCosts` learns both: steps
that only decode show the one, and what other steps take beyond it shows the other.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from vinery_serving.engine.energy.busy import BusyTimes
from vinery_serving.engine.energy.counters import Counter, gpu_counters, package_counters

logger = logging.getLogger(__name__)

_SAMPLE_INTERVAL_S: Final = 0.1
_NEWEST_WEIGHT: Final = 0.1  # of the newest step in the learned costs
_MIN_PREFILL_SHARE: Final = 0.05  # of a step, if it prefills any token


@dataclass(slots=True)
class EnergyTotals:
    """The energy of an engine since its start."""

    used_j: float = 0.0  # its part of the host's, with idle energy
    reported_j: float = 0.0  # the part that was reported with outputs
    watts: float = 0.0  # while it works, by the newest sample


@dataclass(slots=True, eq=False)
class RequestEnergy:
    """The energy that one generation has used so far."""

    totals: EnergyTotals
    sampled_j: float = 0.0
    pending_s: float = 0.0  # work since the last sample
    is_metered: bool = False  # whether a metered step has worked for it
    _reported_j: float = 0.0

    def take_unreported_j(self) -> float | None:
        """Return the joules since the last call; those of pending work are estimated at first.

        None before the first metered step.
        """
        if not self.is_metered:
            return None
        used_j = self.sampled_j + self.pending_s * self.totals.watts
        new_j = max(0.0, used_j - self._reported_j)
        self._reported_j += new_j
        self.totals.reported_j += new_j
        return new_j


class StepWork(NamedTuple):
    """What a step computed for one generation."""

    energy: RequestEnergy
    num_prefilled: int  # tokens of its prompt
    num_decoded: int  # tokens of its output, with draft tokens


class StepCosts:
    """The learned cost of a token. At first all tokens cost the same."""

    def __init__(self) -> None:
        self._prefill_s: float | None = None  # a token
        self._decode_s: float | None = None

    def divide(self, step_s: float, works: Sequence[StepWork]) -> list[float]:
        """Return the seconds of each; their sum is `step_s`."""
        num_prefilled = sum(work.num_prefilled for work in works)
        num_decoded = sum(work.num_decoded for work in works)
        if num_prefilled + num_decoded == 0:
            return [step_s / len(works)] * len(works)
        self._learn(step_s, num_prefilled, num_decoded)
        prefill_s = decode_s = 1.0
        if self._prefill_s is not None and self._decode_s is not None:
            prefill_s, decode_s = self._prefill_s, self._decode_s
        costs = [each.num_prefilled * prefill_s + each.num_decoded * decode_s for each in works]
        whole = sum(costs)
        return [step_s * cost / whole for cost in costs]

    def _learn(self, step_s: float, num_prefilled: int, num_decoded: int) -> None:
        if num_prefilled == 0:
            self._decode_s = _mixed(self._decode_s, step_s / num_decoded)
            return
        if num_decoded and self._decode_s is None:
            return
        decoding_s = num_decoded * (self._decode_s or 0.0)
        prefilling_s = max(step_s - decoding_s, step_s * _MIN_PREFILL_SHARE)
        self._prefill_s = _mixed(self._prefill_s, prefilling_s / num_prefilled)


def _mixed(known: float | None, newest: float) -> float:
    return newest if known is None else known + _NEWEST_WEIGHT * (newest - known)


@dataclass(slots=True)
class EnergySource:
    """Counters, and the busy times of the engines that share them."""

    counters: Sequence[Counter]
    busy: BusyTimes

    def sample(self, own_s: float, elapsed_s: float, now: float) -> tuple[float, float]:
        """Return the watts of a working engine and this engine's part of the idle joules.

        Both are since the last call, `elapsed_s` ago, of which this engine worked `own_s`.
        """
        used_j = sum(counter.read_j() for counter in self.counters)
        worked_s = own_s + self.busy.others_s(now)
        watts = used_j / max(elapsed_s, worked_s)
        idle_j = watts * max(0.0, elapsed_s - worked_s)
        return watts, idle_j / self.busy.num_engines


@dataclass
class EnergyMeter:
    """Call `begin` and `end` around work, and `note` after each step, on the engine's thread."""

    sources: Sequence[EnergySource]
    clock: Callable[[], float] = time.monotonic
    totals: EnergyTotals = field(default_factory=EnergyTotals)

    def __post_init__(self) -> None:
        self._costs = StepCosts()
        self._working_since: float | None = None
        self._pending: set[RequestEnergy] = set()
        self._sampled_at = self.clock()

    def begin(self) -> None:
        """Note that the engine works from now on, if it was idle."""
        if self._working_since is None:
            self._working_since = self.clock()
            for source in self.sources:
                source.busy.begin(self._working_since)

    def end(self) -> None:
        """Note that the engine is idle from now on."""
        now = self.clock()
        self._working_since = None
        for source in self.sources:
            source.busy.end(now)
        if now >= self._sampled_at + _SAMPLE_INTERVAL_S:
            self._sample(now)

    def note(self, works: Sequence[StepWork], *, is_end: bool) -> None:
        """Note a step that is done. `is_end`: a generation of it has finished."""
        now = self.clock()
        step_s = 0.0 if self._working_since is None else now - self._working_since
        if works and step_s > 0:
            for work, worked_s in zip(works, self._costs.divide(step_s, works), strict=True):
                work.energy.is_metered = True
                work.energy.pending_s += worked_s
                self._pending.add(work.energy)
        if self._working_since is not None:
            self._working_since = now
        if is_end or now >= self._sampled_at + _SAMPLE_INTERVAL_S:
            self._sample(now)

    def _sample(self, now: float) -> None:
        elapsed_s = now - self._sampled_at
        if elapsed_s <= 0:
            return
        self._sampled_at = now
        own_s = sum(energy.pending_s for energy in self._pending)
        watts = 0.0
        for source in self.sources:
            of_source, idle_j = source.sample(own_s, elapsed_s, now)
            watts += of_source
            self.totals.used_j += of_source * own_s + idle_j
        for energy in self._pending:
            energy.sampled_j += energy.pending_s * watts
            energy.pending_s = 0.0
        if self._pending:
            self.totals.watts = watts
        self._pending.clear()


def new_meter(sysfs: Path, directory: Path, device: str) -> EnergyMeter | None:
    """Return the meter for this device; None without counters. Engines share `directory`."""
    counters = {"cpu": package_counters(sysfs)}
    if "GPU" in device:
        counters["gpu"] = gpu_counters(sysfs)
    try:
        sources = [
            EnergySource(each, BusyTimes(directory / name))
            for name, each in counters.items()
            if each
        ]
    except OSError as error:
        logger.warning("energy metering disabled path=%s error=%s", directory, error)
        return None
    return EnergyMeter(sources) if sources else None
