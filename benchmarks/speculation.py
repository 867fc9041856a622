"""Proposing tokens ahead: whether greedy text stays the same, and the gain.

The reference model is loaded three times into one process: alone, with its draft model, and with
prompt lookup. All three answer the same questions, in turn, one stream at a time and several. The
draft was trained beside the model; the share of right drafts is a matter of these two, not of the
engine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.compare import Spread
from benchmarks.prompts import PromptSource
from vinery_serving.core.request import Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.options import EngineOptions
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import Submit

PLAIN: Final = "plain"
_DEADLINE_S: Final = 3600.0


@dataclass(frozen=True)
class SpeculationPoint:
    """A way of proposing, at a number of streams."""

    way: str
    num_streams: int
    speed: Spread  # tokens per second, by those of the plain model
    tokens_per_step: float  # of one stream
    num_proposed: int
    num_accepted: int
    same_texts: float  # 0..1


def measure_speculation(
    folder: Path,
    draft: Path,
    prompts: PromptSource,
    *,
    streams: Sequence[int],
    rounds: int,
    num_tokens: int,
    options: EngineOptions,
) -> tuple[SpeculationPoint, ...]:
    """Raises RuntimeError for a model that cannot be loaded so."""
    ways: Mapping[str, dict[str, Any]] = {
        PLAIN: {},
        "draft model": {"draft_model": str(draft)},
        "prompt lookup": {"prompt_lookup": True},
    }
    with tempfile.TemporaryDirectory(prefix="vinery-speculation-") as cache:
        batches = {
            way: Batch(
                Pipeline(_model_config(folder, Path(cache) / str(at), options, **changes)),
                options.max_running,
            )
            for at, (way, changes) in enumerate(ways.items())
        }
    points: list[SpeculationPoint] = []
    for num_streams in streams:
        runs: dict[str, list[_Run]] = {way: [] for way in ways}
        for _ in range(rounds):
            ids = [prompt.ids for prompt in prompts.take(num_streams)]
            for way, batch in batches.items():
                runs[way].append(_run(batch, ids, num_tokens))
        points += [_point(way, num_streams, runs) for way in ways if way != PLAIN]
    return tuple(points)


@dataclass(frozen=True)
class _Run:
    texts: list[list[int]]
    took_s: float
    num_steps: int
    num_proposed: int
    num_accepted: int

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.texts)) / self.took_s


def _run(batch: Batch, prompts: Sequence[Sequence[int]], num_tokens: int) -> _Run:
    generations = [Generation.of(None, _greedy(ids, num_tokens)) for ids in prompts]
    for generation in generations:
        batch.add(generation)
    num_steps = 0
    began_s = time.perf_counter()
    while len(batch):
        step = batch.step()
        for failed in step.failed:
            raise RuntimeError(failed.message)
        for new in step.generated:
            new.generation.tokens += new.token_ids
        num_steps += 1
    return _Run(
        [generation.tokens for generation in generations],
        time.perf_counter() - began_s,
        num_steps,
        sum(generation.num_proposed for generation in generations),
        sum(generation.num_accepted for generation in generations),
    )


def _model_config(
    folder: Path, cache: Path, options: EngineOptions, **changes: Any
) -> EngineConfig:
    # The model is loaded only once, so a cache of compiled models would be useless.
    plugin = {**options.plugin, "CACHE_DIR": ""}
    return EngineConfig(
        name="benchmark",
        folder=folder,
        device="CPU",
        socket_path=cache / "unused.sock",
        socket_key=b"",
        cache_dir=cache,
        max_context=0,
        options=msgspec.structs.replace(options, plugin=plugin, **changes),
    )


def _greedy(prompt_ids: Sequence[int], num_tokens: int) -> Submit:
    """Return a greedy request for `num_tokens` tokens at most."""
    return Submit(
        id=0,
        prompt_ids=np.array(prompt_ids, dtype="<i4").tobytes(),
        sampling=Sampling(),
        max_new_tokens=num_tokens,
        deadline_s=_DEADLINE_S,
    )


def _point(way: str, num_streams: int, runs: Mapping[str, list[_Run]]) -> SpeculationPoint:
    plain, ahead = runs[PLAIN], runs[way]
    pairs = [
        one == other
        for before, after in zip(plain, ahead, strict=True)
        for one, other in zip(before.texts, after.texts, strict=True)
    ]
    longest = sum(max(map(len, run.texts)) for run in ahead)
    return SpeculationPoint(
        way,
        num_streams,
        Spread.of(
            [
                after.tokens_per_s / before.tokens_per_s
                for before, after in zip(plain, ahead, strict=True)
            ]
        ),
        longest / sum(run.num_steps for run in ahead),
        sum(run.num_proposed for run in ahead),
        sum(run.num_accepted for run in ahead),
        sum(pairs) / len(pairs),
    )
