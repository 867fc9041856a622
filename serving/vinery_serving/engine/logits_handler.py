"""What one generation reads from its logits and changes in them, in every step.

`LogitsHandler` finds the generation's rows and collects log-probabilities. `LogitsEditor` changes
a row, in this order: bias, bad words, allowed tokens, the administrator's processors, and the end
of reasoning that has used up its budget. Beside a draft model a `TokenSampler` comes last.

An administrator names logits processors by import path in the engine options. Each path names a
factory. The engine calls it once for each request with processor arguments (a dict). The factory
returns a function `process(token_ids, logits)`, or None if the arguments are not for it.
`token_ids` are the tokens generated so far; `logits` is a float32 array `(vocab_size,)` that the
function changes in place.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from vinery_serving.engine.logits_hook import StepView
from vinery_serving.engine.logprobs import Row, RowLogprobs
from vinery_serving.engine.prefix_cache import TokenArray
from vinery_serving.engine.sampler import TokenSampler
from vinery_serving.engine.step_layout import ScheduledSequence, Span
from vinery_serving.transport.messages import (
    LogitsSpec,
    LogprobsSpec,
    ReasoningBudget,
    Submit,
    TokenLogprobs,
)

# Changes a row in place. Gets the tokens generated so far.
Processor = Callable[[Sequence[int], Row], None]
Factory = Callable[[Mapping[str, Any]], Processor | None]

_FORBIDDEN = np.float32(-np.inf)


class PromptWasCached(Exception):
    """A prompt to be scored was partly taken from the prefix cache, and so not computed."""


class LogitsHandler:
    """Handles a generation with `Submit.logits`, or with what the pipeline leaves to it
    (`Pipeline.leaves_penalty`, `Pipeline.leaves_sampling`)."""

    def __init__(
        self, submit: Submit, prompt_ids: TokenArray, processors: Sequence[Processor] = ()
    ) -> None:
        spec = self._spec = submit.logits or LogitsSpec()
        self._prompt_ids = prompt_ids
        self._penalty = submit.sampling.repetition_penalty or 1.0
        self._editor = LogitsEditor(spec, processors)
        # Set by the batch when it adds the generation.
        self.applies_penalty = False
        self.samples = False
        self._sampler = TokenSampler(submit.sampling)
        self._rows: list[RowLogprobs] = []  # of the last step: one for each possible new token
        self.prompt_logprobs: list[TokenLogprobs] = []

    @property
    def must_score(self) -> bool:
        """Whether tokens of the prompt still have to be scored. Then all are computed."""
        is_asked = self._spec.prompt_logprobs is not None
        return is_asked and len(self.prompt_logprobs) < len(self._prompt_ids) - 1

    def restart(self) -> None:
        self._rows = []
        if self.must_score:
            self.prompt_logprobs = []

    def handle(
        self, view: StepView, span: Span, sequence: ScheduledSequence, tokens: Sequence[int]
    ) -> None:
        """Handle the generation's rows in the middle of a step, on the engine's thread.

        `tokens` are the tokens generated so far. Raises PromptWasCached, or any exception of an
        administrator's processor.
        """
        self._rows = []
        if sequence.is_decoding:
            # One row for the next token, and one behind each draft token, as if all draft tokens
            # before it were accepted.
            drafts = view.token_ids[span.index + 1 : span.index + span.num_tokens].tolist()
            for number, row in enumerate(span.rows):
                self._handle_row(view, row, [*tokens, *drafts[:number]] if number else tokens)
            return
        if self.must_score and self._spec.prompt_logprobs is not None:
            self._score(view, span, self._spec.prompt_logprobs)
        if span.start + span.num_tokens == sequence.num_pipeline_tokens:
            self._handle_row(view, span.rows[-1], tokens)

    def logprobs(self, token_ids: Sequence[int]) -> list[TokenLogprobs]:
        """Return those of the tokens of the last step; an empty list if none were asked for."""
        return [row.of(id_) for row, id_ in zip(self._rows, token_ids, strict=False)]

    def _handle_row(self, view: StepView, number: int, tokens: Sequence[int]) -> None:
        row = view.logits[number]
        if self._spec.logprobs is not None:
            self._rows.append(RowLogprobs(row, self._spec.logprobs))
        if self.applies_penalty:
            penalize(row, self._prompt_ids, tokens, self._penalty)
        self._editor.edit(row, tokens)
        if self.samples:
            self._sampler.prepare(row, tokens)

    def _score(self, view: StepView, span: Span, spec: LogprobsSpec) -> None:
        if span.start != len(self.prompt_logprobs):
            raise PromptWasCached
        following = self._prompt_ids[span.start + 1 : span.start + span.num_tokens + 1]
        for row, token_id in zip(span.rows, following, strict=False):
            self.prompt_logprobs.append(RowLogprobs(view.logits[row], spec).of(int(token_id)))


class LogitsEditor:
    """Changes the rows of one generation. After a failed step, tokens may come again."""

    def __init__(self, spec: LogitsSpec, processors: Sequence[Processor] = ()) -> None:
        self._bias_ids = np.array([id_ for id_, _ in spec.bias], dtype=np.intp)
        self._bias = np.array([bias for _, bias in spec.bias], dtype=np.float32)
        self._banned = np.array([word[0] for word in spec.bad_words if len(word) == 1], np.intp)
        self._phrases = [word for word in spec.bad_words if len(word) > 1]
        self._allowed = np.unique(np.array(spec.allowed_ids, dtype=np.intp))
        self._processors = processors
        self._reasoning = None if spec.budget is None else _ReasoningLimiter(spec.budget)

    def edit(self, row: Row, tokens: Sequence[int]) -> None:
        """Change the row from which the token after `tokens` is sampled."""
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias
        if len(self._banned):
            row[self._banned] = _FORBIDDEN
        for *beginning, last in self._phrases:
            if len(tokens) >= len(beginning) and list(tokens[-len(beginning) :]) == beginning:
                row[last] = _FORBIDDEN
        if len(self._allowed):
            _allow_only(row, self._allowed)
        for processor in self._processors:
            processor(tokens, row)
        if self._reasoning is not None:
            forced = self._reasoning.next_forced(tokens)
            if forced is not None:
                _allow_only(row, np.array([forced], np.intp))


def penalize(row: Row, prompt_ids: TokenArray, tokens: Sequence[int], penalty: float) -> None:
    """Apply `repetition_penalty` to a row in place, as GenAI's sampler does."""
    ids = np.unique(np.concatenate((prompt_ids, np.array(tokens, np.int64))))
    values, factor = row[ids], np.float32(penalty)
    row[ids] = np.where(values > 0, values / factor, values * factor)


def check_ids(spec: LogitsSpec, vocab_size: int) -> None:
    """Raises ValueError if `spec` has a token id outside the vocabulary."""
    words = (id_ for word in spec.bad_words for id_ in word)
    logprobs = [each for each in (spec.logprobs, spec.prompt_logprobs) if each is not None]
    reported = (id_ for each in logprobs for id_ in each.token_ids)
    for id_ in chain((id_ for id_, _ in spec.bias), words, spec.allowed_ids, reported):
        if not 0 <= id_ < vocab_size:
            raise ValueError(f"{id_} is no token of this model: ids go from 0 to {vocab_size - 1}.")


def load_factories(paths: Sequence[str]) -> dict[str, Factory]:
    """Return the factories by path. Raises RuntimeError if one is not a function."""
    factories: dict[str, Factory] = {}
    for path in paths:
        module_name, _, name = path.partition(":")
        try:
            factories[path] = getattr(importlib.import_module(module_name), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise RuntimeError(f"logits_processors: {path} cannot be imported: {error}") from error
        if not callable(factories[path]):
            raise RuntimeError(f"logits_processors: {path} is not a function.")
    return factories


def new_processors(factories: Mapping[str, Factory], args: Mapping[str, Any]) -> list[Processor]:
    """Return a request's processors. Raises ValueError if none takes `args`, or one refuses."""
    processors: list[Processor] = []
    for path, factory in factories.items():
        try:
            processor = factory(args)
        except Exception as error:  # the administrator's code may raise anything
            raise ValueError(
                f"The logits processor {path} refused its arguments: {error}"
            ) from None
        if processor is not None:
            processors.append(processor)
    if not processors:
        raise ValueError("No logits processor of this model takes these arguments.")
    return processors


def _allow_only(row: Row, ids: npt.NDArray[np.intp]) -> None:
    values = row[ids]
    row.fill(_FORBIDDEN)
    # If all of these were forbidden, they become possible again: one token must be sampled.
    row[ids] = values if np.isfinite(values).any() else 0


class _ReasoningLimiter:
    """Counts reasoning tokens, and forces the end of reasoning when the budget is used up."""

    def __init__(self, budget: ReasoningBudget) -> None:
        self._budget = budget
        self._longest_mark = max(len(budget.start), len(budget.end))
        self._restart()

    def _restart(self) -> None:
        self._num_seen = 0
        self._num_reasoning = 0
        self._num_closing = 0
        self._is_open = self._budget.is_open

    def next_forced(self, tokens: Sequence[int]) -> int | None:
        """Return the only token that may follow `tokens`; None if any may."""
        if len(tokens) < self._num_seen:
            self._restart()
        for num_tokens in range(self._num_seen + 1, len(tokens) + 1):
            self._see(tokens[max(0, num_tokens - self._longest_mark) : num_tokens])
        self._num_seen = len(tokens)
        if not self._is_open or self._num_reasoning < self._budget.max_tokens:
            return None
        return self._budget.closing_ids[self._num_closing]

    def _see(self, last: Sequence[int]) -> None:
        """Take one more token. `last` ends with it, and has the length of the longest mark."""
        budget = self._budget
        if self._is_open and self._num_reasoning >= budget.max_tokens:
            self._num_closing += 1
            self._is_open = self._num_closing < len(budget.closing_ids)
        elif self._is_open and _ends_with(last, budget.end):
            self._is_open = False
        elif self._is_open:
            self._num_reasoning += 1
        elif _ends_with(last, budget.start):
            self._is_open, self._num_closing = True, 0


def _ends_with(tokens: Sequence[int], mark: Sequence[int]) -> bool:
    return bool(mark) and tuple(tokens[-len(mark) :]) == tuple(mark)
