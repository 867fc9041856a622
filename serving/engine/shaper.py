"""Changes the logits of one generation as its request demands.

In this order: bias, forbidden words, allowed tokens, processors of the
administrator, and last the end of a thought that has used up its budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from serving.engine.logprobs import Row
from serving.transport.messages import LogitsSpec, ReasoningBudget

# Changes a row in place. Gets the tokens made so far.
Processor = Callable[[Sequence[int], Row], None]

_FORBIDDEN = np.float32(-np.inf)


class Shaper:
    """Of one generation. `shape` is called once for each token, in order; after a failed
    step tokens may come again from the first."""

    def __init__(
        self,
        spec: LogitsSpec,
        *,
        processors: Sequence[Processor] = (),
    ) -> None:
        self._bias_ids = np.array([id_ for id_, _ in spec.bias], dtype=np.intp)
        self._bias = np.array([bias for _, bias in spec.bias], dtype=np.float32)
        self._banned = np.array([word[0] for word in spec.bad_words if len(word) == 1], np.intp)
        self._phrases = [word for word in spec.bad_words if len(word) > 1]
        self._allowed = np.unique(np.array(spec.allowed_ids, dtype=np.intp))
        self._processors = processors
        self._thought = None if spec.budget is None else _Thought(spec.budget)

    def shape(self, row: Row, tokens: Sequence[int]) -> None:
        """Change the row from which the token after `tokens` will be drawn."""
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias
        self._forbid_words(row, tokens)
        if len(self._allowed):
            _allow_only(row, self._allowed)
        for processor in self._processors:
            processor(tokens, row)
        if self._thought is not None:
            forced = self._thought.next_forced(tokens)
            if forced is not None:
                _allow_only(row, np.array([forced], np.intp))

    def _forbid_words(self, row: Row, tokens: Sequence[int]) -> None:
        if len(self._banned):
            row[self._banned] = _FORBIDDEN
        for phrase in self._phrases:
            *beginning, last = phrase
            if len(tokens) >= len(beginning) and list(tokens[-len(beginning) :]) == beginning:
                row[last] = _FORBIDDEN


def penalize(
    row: Row, prompt_ids: npt.NDArray[np.int64], tokens: Sequence[int], penalty: float
) -> None:
    """As the engine does for `repetition_penalty`: what was said before becomes less likely."""
    ids = np.unique(np.concatenate((prompt_ids, np.array(tokens, np.int64))))
    values, factor = row[ids], np.float32(penalty)
    row[ids] = np.where(values > 0, values / factor, values * factor)


def check_ids(spec: LogitsSpec, vocab_size: int) -> None:
    """Raises ValueError for a token that the model does not have."""
    words = (id_ for word in spec.bad_words for id_ in word)
    told = [each.token_ids for each in (spec.logprobs, spec.prompt_logprobs) if each is not None]
    for id_ in chain((id_ for id_, _ in spec.bias), words, spec.allowed_ids, *told):
        if not 0 <= id_ < vocab_size:
            raise ValueError(f"{id_} is no token of this model: ids go from 0 to {vocab_size - 1}.")


def _allow_only(row: Row, ids: npt.NDArray[np.intp]) -> None:
    values = row[ids]
    row.fill(_FORBIDDEN)
    # A token that nothing else would let through must still be one that can be drawn.
    row[ids] = values if np.isfinite(values).any() else 0


class _Thought:
    """Counts the tokens of thoughts, and forces the end when there have been too many."""

    def __init__(self, budget: ReasoningBudget) -> None:
        self._budget = budget
        self._longest_mark = max(len(budget.start), len(budget.end))
        self._num_seen: int
        self._num_thought: int
        self._num_closing: int
        self._is_open: bool
        self._start_over()

    def next_forced(self, tokens: Sequence[int]) -> int | None:
        """The token that must come now; None for any."""
        if len(tokens) < self._num_seen:
            self._start_over()
        for num_tokens in range(self._num_seen + 1, len(tokens) + 1):
            self._see(tokens[max(0, num_tokens - self._longest_mark) : num_tokens])
        self._num_seen = len(tokens)
        if not self._is_open or self._num_thought < self._budget.max_tokens:
            return None
        return self._budget.closing_ids[self._num_closing]

    def _start_over(self) -> None:
        self._num_seen = 0
        self._num_thought = 0
        self._num_closing = 0
        self._is_open = self._budget.is_open

    def _see(self, last: Sequence[int]) -> None:
        """One more token; `last` are the last ones, as many as the longest mark has."""
        budget = self._budget
        if self._is_open and self._num_thought >= budget.max_tokens:
            self._num_closing += 1
            self._is_open = self._num_closing < len(budget.closing_ids)
        elif self._is_open and _ends_with(last, budget.end):
            self._is_open = False
        elif self._is_open:
            self._num_thought += 1
        elif _ends_with(last, budget.start):
            self._is_open, self._num_closing = True, 0


def _ends_with(tokens: Sequence[int], mark: Sequence[int]) -> bool:
    return bool(mark) and tuple(tokens[-len(mark) :]) == tuple(mark)
