"""Proposing tokens ahead: whether greedy text stays the same, and the gain.

The reference model is loaded three times into one process: alone, with its draft model, and with
prompt lookup. All three answer the same texts, in turn, one stream at a time and several; prompt
lookup with five tokens, and with one, the least that GenAI allows. The draft was trained beside the
model; the share of right drafts is a matter of these two, not of the engine.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.compare import Spread
from benchmarks.prompts import Messages, PromptSource, counting, rambling
from vinery_serving.core.request import Sampling, SpeculativeDecoding
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
    kind: str  # of the texts
    num_streams: int
    speed: Spread  # tokens per second, by those of the plain model
    tokens_per_step: float  # of one stream
    num_proposed: int
    num_accepted: int
    same_texts: float  # 0..1


def code(number: int) -> Messages:
    """Lines of this repository's Python."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    start = 7 * number % (len(lines) - 20)
    return [{"role": "user", "content": "\n".join([str(number), *lines[start : start + 20]])}]


TEXTS: Final = {"chat": counting, "code": code, "random": rambling(100)}


@dataclass(frozen=True)
class _Way:
    options: dict[str, Any]
    assist: SpeculativeDecoding | None


def measure_speculation(
    folder: Path,
    draft: Path,
    *,
    streams: Sequence[int],
    rounds: int,
    num_tokens: int,
    options: EngineOptions,
) -> tuple[SpeculationPoint, ...]:
    """Raises RuntimeError for a model that cannot be loaded so."""
    lookups = (SpeculativeDecoding(num, max_ngram_size=3, is_asked=True) for num in (5, 1))
    ways = {
        PLAIN: _Way({}, None),
        "draft model": _Way({"draft_model": str(draft)}, SpeculativeDecoding(5, is_asked=True)),
        "prompt lookup": _Way({"prompt_lookup": True}, next(lookups)),
        "lookup of one": _Way({"prompt_lookup": True}, next(lookups)),
    }
    with tempfile.TemporaryDirectory(prefix="vinery-speculation-") as cache:
        batches = {
            name: Batch(
                Pipeline(_model_config(folder, Path(cache) / str(at), options, **way.options)),
                options.max_running,
            )
            for at, (name, way) in enumerate(ways.items())
        }
    points: list[SpeculationPoint] = []
    for kind, num_streams in product(TEXTS, streams):
        prompts = PromptSource(folder, TEXTS[kind])
        runs: dict[str, list[_Run]] = {name: [] for name in ways}
        for _ in range(rounds):
            ids = [prompt.ids for prompt in prompts.take(num_streams)]
            for name, batch in batches.items():
                requests = [_greedy(each, num_tokens, ways[name].assist) for each in ids]
                runs[name].append(_run(batch, requests))
        points += [_point(name, kind, num_streams, runs) for name in ways if name != PLAIN]
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


def _run(batch: Batch, requests: Sequence[Submit]) -> _Run:
    generations = [Generation.of(None, each) for each in requests]
    waiting = deque(generations)
    num_steps = 0
    began_s = time.perf_counter()
    while waiting or len(batch):
        while waiting and batch.may_join(waiting[0]):  # else it could get another's cached block
            batch.add(waiting.popleft())
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


def _greedy(
    prompt_ids: Sequence[int], num_tokens: int, assist: SpeculativeDecoding | None
) -> Submit:
    """Return a greedy request for `num_tokens` tokens at most."""
    ids = np.array(prompt_ids, dtype="<i4").tobytes()
    return Submit(0, ids, Sampling(), num_tokens, _DEADLINE_S, assist=assist)


def _point(
    way: str, kind: str, num_streams: int, runs: Mapping[str, list[_Run]]
) -> SpeculationPoint:
    ahead, pairs = runs[way], list(zip(runs[PLAIN], runs[way], strict=True))
    texts = [zip(before.texts, after.texts, strict=True) for before, after in pairs]
    same = [one == other for each in texts for one, other in each]
    longest = sum(max(map(len, run.texts)) for run in ahead)
    return SpeculationPoint(
        way,
        kind,
        num_streams,
        Spread.of([after.tokens_per_s / before.tokens_per_s for before, after in pairs]),
        longest / sum(run.num_steps for run in ahead),
        sum(run.num_proposed for run in ahead),
        sum(run.num_accepted for run in ahead),
        sum(same) / len(same),
    )
