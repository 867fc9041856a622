"""The cost of reading and changing logits: decode steps of a batch with and without the hook.

The batch with the hook has a *use*; the batches without it only decode.
See `hook_batches` for how they are stepped.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from benchmarks.compare import Spread
from benchmarks.hook_batches import Batches, StepTimes
from benchmarks.progress import show
from vinery_serving.engine.options import EngineOptions
from vinery_serving.transport.messages import LogitsSpec, LogprobsSpec

_BIAS: Final = LogitsSpec(bias=tuple((id_, -100.0) for id_ in range(300)))  # OpenAI's limit
_TOP: Final = LogitsSpec(logprobs=LogprobsSpec(num_top=20))  # as well
_ALLOWED: Final = LogitsSpec(allowed_ids=tuple(range(1000)))

OFF: Final = "off"
_ONE: Final = "300 biased, 1 stream"
# What the first stream of a batch asks for, and what the others do.
USES: Final[Mapping[str, tuple[LogitsSpec | None, LogitsSpec | None]]] = {
    OFF: (None, None),
    _ONE: (_BIAS, None),
    "300 biased": (_BIAS, _BIAS),
    "top_logprobs 20": (_TOP, _TOP),
    "1000 allowed": (_ALLOWED, _ALLOWED),
}


@dataclass(frozen=True)
class HookEffort:
    """How much is measured."""

    streams: tuple[int, ...]
    num_rounds: int
    round_s: float


@dataclass(frozen=True)
class HookPoint:
    """One use at one number of streams. Each round gives the medians of its steps."""

    use: str
    num_streams: int
    ratio: Spread  # a step with the hook by one without, of all rounds
    noise: Spread  # one without the hook by another one without: 1 on a perfect machine
    without_ms: float
    with_ms: float
    added_us: float  # to a step


@dataclass(frozen=True)
class HookResult:
    """All that was measured with one model."""

    model: str
    vocab_size: int
    points: tuple[HookPoint, ...]


def measure_hook(
    model: str,
    folder: Path,
    options: EngineOptions,
    effort: HookEffort,
) -> HookResult:
    """Measure in a process of its own, which gives all memory back. Raises
    what the engine raises."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_measure, model, folder, options, effort).result()


def _measure(
    model: str,
    folder: Path,
    options: EngineOptions,
    effort: HookEffort,
) -> HookResult:
    batches = Batches(folder, options)
    gc.collect()
    gc.disable()  # as good as in the engine, where nothing that was loaded is looked at again
    points = []
    for num_streams in effort.streams:
        for use in uses(num_streams):
            points.append(_point(batches, use, num_streams, effort))
            show(f"  {model}, {use}, {num_streams} streams: {points[-1].ratio.median:.3f}")
    return HookResult(model, batches.vocab_size, tuple(points))


def uses(num_streams: int) -> Iterator[str]:
    """What is measured. With one stream, one of them and all of them are the same."""
    return (use for use in USES if num_streams > 1 or use != _ONE)


def _point(batches: Batches, use: str, num_streams: int, effort: HookEffort) -> HookPoint:
    first, others = USES[use]
    specs = [first, *[others] * (num_streams - 1)]
    rounds = [_Round(batches.step_times(specs, effort.round_s)) for _ in range(effort.num_rounds)]
    return HookPoint(
        use=use,
        num_streams=num_streams,
        ratio=Spread.of([each.ratio for each in rounds]),
        noise=Spread.of([each.noise for each in rounds]),
        without_ms=median(each.without_s for each in rounds) * 1e3,
        with_ms=median(each.with_s for each in rounds) * 1e3,
        added_us=median(each.added_s for each in rounds) * 1e6,
    )


class _Round:
    """Steps are compared with those that ran beside them, before the median is taken."""

    def __init__(self, times: StepTimes) -> None:
        without_s = (times.without_s + times.without_again_s) / 2
        self.ratio = float(np.median(times.with_s / without_s))
        self.noise = float(np.median(times.without_again_s / times.without_s))
        self.added_s = float(np.median(times.with_s - without_s))
        self.without_s = float(np.median(without_s))
        self.with_s = float(np.median(times.with_s))
