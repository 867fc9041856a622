"""Equal batches that decode in turn, on a model with the logits hook and without it.

The engine's own classes load the model three times into one process: without the hook, with it,
and without it again. A step of each follows a step of the others, so that disturbances of the
machine meet all of them. Two loads of one model differ in speed by some percent for as long as
they live, depending on their memory addresses. The two without the hook show how much, and their
mean is compared with the one that has the hook.

A step includes reading the tokens and their log-probabilities.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.own_engine import config_of, greedy, keep
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.logits_handler import LogitsHandler
from vinery_serving.engine.options import EngineOptions
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import LogitsSpec, Submit

_PROMPT_TOKENS: Final = 8
_MIN_STEPS: Final = 9
_MAX_STEPS: Final = 256
# Never reached: a stream that is prefilled early generates tokens while others are prefilled.
_MAX_NEW_TOKENS: Final = 2 * _MAX_STEPS

_Seconds = npt.NDArray[np.float64]  # (num_steps,)


class StepTimes(NamedTuple):
    """The durations of the steps of each batch, in seconds."""

    without_s: _Seconds
    with_s: _Seconds
    without_again_s: _Seconds


class Batches:
    """The three batches. Raises RuntimeError for a model that does not get the hook."""

    def __init__(self, folder: Path, options: EngineOptions) -> None:
        with tempfile.TemporaryDirectory(prefix="vinery-hook-") as cache:
            config = config_of(folder, Path(cache), options)
            pipelines = [Pipeline(config, with_hook=each) for each in (False, True, False)]
        if not pipelines[1].has_logits_hook:
            raise RuntimeError(
                f"The model in {folder} does not get the hook: there is nothing to measure."
            )
        self.vocab_size = pipelines[1].vocab_size
        self._batches = [Batch(pipeline, options.max_running) for pipeline in pipelines]
        self._random = np.random.default_rng(1)

    def step_times(self, specs: Sequence[LogitsSpec | None], round_s: float) -> StepTimes:
        """Decode for about `round_s` seconds, with a stream for each of `specs`.

        Only the batch with the hook uses the specs.
        """
        size = (len(specs), _PROMPT_TOKENS)
        prompts = self._random.integers(self.vocab_size, size=size, dtype=np.int32)
        plain = [greedy(prompt, _MAX_NEW_TOKENS, ignore_eos=True) for prompt in prompts]
        asking = [
            msgspec.structs.replace(submit, logits=spec)
            for submit, spec in zip(plain, specs, strict=True)
        ]
        sides = [
            _Side(batch, submits)
            for batch, submits in zip(self._batches, (plain, asking, plain), strict=True)
        ]
        _take_turns(sides, round_s)
        for side in sides:
            side.end()
        return StepTimes(*(np.array(side.steps_s) for side in sides))


def _take_turns(sides: Sequence[_Side], round_s: float) -> None:
    end_at = time.perf_counter() + round_s
    for number in range(_MAX_STEPS):
        if number >= _MIN_STEPS and time.perf_counter() > end_at:
            return
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            side.step()


class _Side:
    """The generations of one batch."""

    def __init__(self, batch: Batch, submits: Sequence[Submit]) -> None:
        """Returns when all prompts are prefilled."""
        self.steps_s: list[float] = []
        self._batch = batch
        self._generations = [_generation(submit) for submit in submits]
        for generation in self._generations:
            batch.add(generation)
        while not all(generation.is_decoding for generation in self._generations):
            self._advance()

    def step(self) -> None:
        self.steps_s.append(self._advance())

    def end(self) -> None:
        for generation in self._generations:
            self._batch.remove(generation)
        while self._batch.has_work:
            self._batch.step()

    def _advance(self) -> float:
        """Return the seconds that the step took."""
        began_s = time.perf_counter()
        step = self._batch.step()
        took_s = time.perf_counter() - began_s
        keep(step)
        return took_s


def _generation(submit: Submit) -> Generation:
    generation = Generation.of(None, submit)
    if submit.logits is not None:
        generation.logits = LogitsHandler(submit, generation.prompt_ids)
    return generation
