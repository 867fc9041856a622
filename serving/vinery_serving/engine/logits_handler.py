"""How a generation reads and changes its logits, in every step.

`LogitsHook` is a Python operation in the model's graph (`engine/graph`). The runtime calls it in
the middle of a step, on the engine's thread, with the rows of logits that will be sampled. While no
callback is set, it costs some 40 us a step. `LogitsHandler` finds the generation's rows and
collects log-probabilities. `LogitsEditor` changes a row, in this order: bias, bad words, allowed
tokens, the administrator's processors, and the end of reasoning that has used up its budget. Beside
a draft model a `TokenSampler` comes last.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import openvino as ov

from vinery_serving.core.request import Sampling
from vinery_serving.engine.prefix_cache import TokenArray
from vinery_serving.engine.step_layout import Span
from vinery_serving.transport import messages

if TYPE_CHECKING:
    from vinery_serving.engine.generation import Generation

Row = npt.NDArray[np.float32]  # (vocab_size,)
# Changes a row of one request in place. Gets the tokens generated so far.
Processor = Callable[[Sequence[int], Row], None]
# Gets the arguments of a request. None: these are not for this processor.
Factory = Callable[[Mapping[str, Any]], Processor | None]

_FORBIDDEN = np.float32(-np.inf)

# The top tokens of a row are searched in its best blocks: the maximum of each block is found at
# memory speed, while a partition of the whole row is twenty times slower. A block is a column of
# the row laid out in this many lines, because numpy compares whole lines at once. Measured
# between 32 and 128, the number makes little difference.
_BLOCK: Final = 64
# JSON has no infinity. vLLM also writes this number for an impossible token.
_IMPOSSIBLE: Final = -9999.0
# Tokens outside `top_k`, `top_p` and `min_p` are far below the others, but stay possible: a
# grammar, which GenAI applies later, may forbid all others.
_CUT: Final = np.float32(1e6)
_UINT64: Final = 2**64
_NO_IDS: Final = np.zeros(0, np.int32)


class StepView(NamedTuple):
    """The tensors of a step. Valid during the callback only: GenAI owns the memory."""

    logits: npt.NDArray[np.float32]  # (num_rows, vocab_size), writable
    # (num_tokens,), of all tokens that the step computes; of a vision model (0,)
    token_ids: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]  # (num_tokens,); with rows (3 * num_tokens,), row by row


class LogitsHook(ov.Op):  # type: ignore[misc]
    """The operation that calls `callback`. Its output is not used."""

    # The runtime instantiates this class itself, so that instances can share state only through
    # class attributes. An engine process has one pipeline.
    callback: ClassVar[Callable[[StepView], None] | None] = None
    _TYPE: ClassVar[Any] = ov.Type.f32
    _SHAPE: ClassVar[Any] = ov.PartialShape([1])
    # The instance that serves as every clone once the model is compiled.
    _compiled: ClassVar[LogitsHook | None] = None

    def __init__(self, inputs: Any = None) -> None:
        super().__init__(self, inputs)

    @classmethod
    def before_compile(cls) -> None:
        cls._compiled = None

    @classmethod
    def after_compile(cls) -> None:
        """Call when the model is compiled. Later clones only report the output's shape."""
        cls._compiled = cls()
        cls._compiled.set_output_type(0, cls._TYPE, cls._SHAPE)

    def validate_and_infer_types(self) -> None:
        """The output is one number that is not used. The runtime calls this in every step."""
        if self is not LogitsHook._compiled:
            self.set_output_type(0, self._TYPE, self._SHAPE)

    def clone_with_new_inputs(self, new_inputs: Any) -> LogitsHook:
        """Graph passes call this, and every step calls it to learn the output's shape. The shape
        never changes, and a clone would take longer than the rest of the hook."""
        return LogitsHook._compiled or LogitsHook(new_inputs)

    def visit_attributes(self, _visitor: Any) -> bool:
        return True

    def has_evaluate(self) -> bool:
        return True

    def evaluate(self, _outputs: Any, inputs: Any) -> bool:
        if LogitsHook.callback is not None:
            logits, *ids, positions = (each.data for each in inputs)
            rows = logits.reshape(-1, logits.shape[-1])
            step_ids = ids[0].reshape(-1) if ids else _NO_IDS
            LogitsHook.callback(StepView(rows, step_ids, positions.reshape(-1)))
        return True


class RowLogprobs:
    """The distribution of one row, kept until the sampler has chosen a token. The distribution is
    the model's own, before bias, penalties, grammar and temperature, unless the request asks for
    another (`LogprobsSpec`)."""

    def __init__(self, row: Row, spec: messages.LogprobsSpec) -> None:
        """Copies the row, so the caller may change it afterwards."""
        values = row.astype(np.float32)
        if spec.temperature != 1:
            values /= np.float32(spec.temperature)
        if spec.top_p < 1:
            kept = _nucleus(values, spec.top_p)
            logits = values[kept]
            values.fill(-np.inf)
            values[kept] = logits
        self._values = values
        self._log_sum = _log_sum_exp(values)
        best = top_ids(values, spec.num_top)
        others = [id_ for id_ in spec.token_ids if id_ not in best]
        self._reported_ids = (*best, *others)

    def of(self, token_id: int) -> messages.TokenLogprobs:
        """Return the report of this token, as the sampler's choice."""
        value = self._values[token_id]
        rank = 1 + int(np.count_nonzero(self._values > value))
        others = tuple((id_, self._logprob(id_)) for id_ in self._reported_ids)
        return messages.TokenLogprobs(self._logprob(token_id), rank, others)

    def _logprob(self, token_id: int) -> float:
        logprob = float(self._values[token_id]) - self._log_sum
        return logprob if math.isfinite(logprob) else _IMPOSSIBLE


def top_ids(row: Row, num: int) -> list[int]:
    num = min(num, len(row))
    if num == 0:
        return []
    candidates = _candidates(row, num)
    order = np.lexsort((candidates, -row[candidates]))
    return [int(id_) for id_ in candidates[order[:num]]]


def _candidates(row: Row, num: int) -> npt.NDArray[np.intp]:
    """Return the ids of the `num` greatest values, and of all that equal the last of them."""
    num_blocks = len(row) // _BLOCK
    if num_blocks <= num:
        return np.flatnonzero(row >= np.partition(row, -num)[-num])
    blocks = row[: num_blocks * _BLOCK].reshape(_BLOCK, num_blocks)
    bests = blocks.max(axis=0)
    # At least `num` values reach this threshold: the maxima of `num` blocks.
    threshold = np.partition(bests, -num)[-num]
    chosen = np.flatnonzero(bests >= threshold)
    ids = (np.arange(_BLOCK)[:, None] * num_blocks + chosen).reshape(-1)
    ids = np.concatenate((ids, np.arange(num_blocks * _BLOCK, len(row))))
    candidates: npt.NDArray[np.intp] = ids[row[ids] >= threshold]
    return candidates


def _log_sum_exp(row: Row) -> float:
    top, scratch = row.max(), _scratch(len(row))
    np.subtract(row, top, out=scratch)
    np.exp(scratch, out=scratch)
    return float(top) + math.log(float(scratch.sum()))


@lru_cache(maxsize=1)
def _scratch(size: int) -> Row:
    """Return memory that the only thread reuses: touching fresh pages would take longer."""
    return np.empty(size, np.float32)


def _nucleus(row: Row, top_p: float) -> npt.NDArray[np.intp]:
    """Return the ids of the smallest set of tokens with this probability, the likeliest first."""
    probabilities = np.exp(row - row.max())
    total = probabilities.sum(dtype=np.float64)
    # All tokens below this probability hold less than 1 - top_p together, so none of them is in
    # the set. The few others are sorted quickly.
    likely = np.flatnonzero(probabilities >= (1 - top_p) * total / len(row))
    order = likely[np.argsort(-row[likely], kind="stable")]
    # In float64: thousands of small values would vanish beside a large float32 sum.
    before = np.cumsum(probabilities[order], dtype=np.float64) - probabilities[order]
    kept: npt.NDArray[np.intp] = order[before < top_p * total]
    return kept


class PromptWasCached(Exception):
    """A prompt to be scored was partly taken from the prefix cache, and so not computed."""


class LogitsHandler:
    """Handles a generation with `Submit.logits`, or with what the pipeline leaves to it
    (`Pipeline.leaves_penalty`, `Pipeline.leaves_sampling`)."""

    def __init__(
        self, submit: messages.Submit, prompt_ids: TokenArray, processors: Sequence[Processor] = ()
    ) -> None:
        spec = self._spec = submit.logits or messages.LogitsSpec()
        self._prompt_ids = prompt_ids
        self._penalty = submit.sampling.repetition_penalty or 1.0
        self._editor = LogitsEditor(spec, processors)
        # Set by the batch when it adds the generation.
        self.applies_penalty = False
        self.samples = False
        self._sampler = TokenSampler(submit.sampling)
        self._rows: list[RowLogprobs] = []  # of the last step: one for each possible new token
        self.prompt_logprobs: list[messages.TokenLogprobs] = []

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
        self, view: StepView, span: Span, sequence: Generation, tokens: Sequence[int]
    ) -> None:
        """Handle the generation's rows in the middle of a step, on the engine's thread. `tokens`
        are the tokens generated so far. Raises PromptWasCached, or any exception of an
        administrator's processor."""
        self._rows = []
        if sequence.is_decoding:
            # A row for the next token, and a row behind each draft token, as if all earlier draft
            # tokens were accepted.
            drafts = view.token_ids[span.index + 1 : span.index + span.num_tokens].tolist()
            for number, row in enumerate(span.rows):
                self._handle_row(view, row, [*tokens, *drafts[:number]] if number else tokens)
            return
        if self.must_score and self._spec.prompt_logprobs is not None:
            self._score(view, span, self._spec.prompt_logprobs)
        if span.start + span.num_tokens == sequence.num_pipeline_tokens:
            self._handle_row(view, span.rows[-1], tokens)

    def logprobs(self, token_ids: Sequence[int]) -> list[messages.TokenLogprobs]:
        """Return log-probabilities for the last step's tokens; [] if the request wants none."""
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

    def _score(self, view: StepView, span: Span, spec: messages.LogprobsSpec) -> None:
        if span.start != len(self.prompt_logprobs):
            raise PromptWasCached
        following = self._prompt_ids[span.start + 1 : span.start + span.num_tokens + 1]
        for row, token_id in zip(span.rows, following, strict=False):
            self.prompt_logprobs.append(RowLogprobs(view.logits[row], spec).of(int(token_id)))


class LogitsEditor:
    """Changes the rows of one generation. After a failed step, tokens may come again."""

    def __init__(self, spec: messages.LogitsSpec, processors: Sequence[Processor] = ()) -> None:
        self._bias_ids = np.array([id_ for id_, _ in spec.bias], dtype=np.intp)
        self._bias = np.array([bias for _, bias in spec.bias], dtype=np.float32)
        self._banned = np.array([word[0] for word in spec.bad_words if len(word) == 1], np.intp)
        self._phrases = [word for word in spec.bad_words if len(word) > 1]
        self._allowed = np.unique(np.array(spec.allowed_ids, dtype=np.intp))
        self._processors = processors
        self._reasoning = None if spec.budget is None else _ReasoningLimiter(spec.budget)

    def edit(self, row: Row, tokens: Sequence[int]) -> None:
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


def check_ids(spec: messages.LogitsSpec, vocab_size: int) -> None:
    """Raises ValueError if `spec` has a token id outside the vocabulary."""
    words = (id_ for word in spec.bad_words for id_ in word)
    logprobs = [each for each in (spec.logprobs, spec.prompt_logprobs) if each is not None]
    reported = (id_ for each in logprobs for id_ in each.token_ids)
    for id_ in chain((id_ for id_, _ in spec.bias), words, spec.allowed_ids, reported):
        if not 0 <= id_ < vocab_size:
            raise ValueError(f"{id_} is no token of this model: ids go from 0 to {vocab_size - 1}.")


def load_factories(paths: Sequence[str]) -> dict[str, Factory]:
    """Return the factories by path, see the option `logits_processors`. Raises RuntimeError if one
    is not a function."""
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
    """Return a request's processors. Raises ValueError if none takes `args`, or any refuses."""
    processors: list[Processor] = []
    for path, factory in factories.items():
        try:
            if (processor := factory(args)) is not None:
                processors.append(processor)
        except Exception as error:  # the administrator's code may raise anything
            sentence = f"The logits processor {path} refused its arguments: {error}"
            raise ValueError(sentence) from None
    if not processors:
        raise ValueError("No logits processor of this model takes these arguments.")
    return processors


def _allow_only(row: Row, ids: npt.NDArray[np.intp]) -> None:
    values = row[ids]
    row.fill(_FORBIDDEN)
    # If all allowed tokens were forbidden, they become possible again: a token must be sampled.
    row[ids] = values if np.isfinite(values).any() else 0


class _ReasoningLimiter:
    """Counts reasoning tokens, and forces the end of reasoning when the budget is used up."""

    def __init__(self, budget: messages.ReasoningBudget) -> None:
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


class TokenSampler:
    """Samples where the pipeline must not: beside a draft model, where GenAI 2026.4.1 reads one row
    too far after a rejected draft token (openvinotoolkit/openvino.genai#4190). The pipeline decodes
    greedily there, and each row gets noise that makes its largest logit a sample of the model's
    distribution (the Gumbel-max trick). The noise depends on the seed and on the number of tokens
    before it, so an answer that goes on elsewhere goes on with the same noise."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def prepare(self, row: Row, tokens: Sequence[int]) -> None:
        """Change a row of logits, float32 `(vocab_size,)`, in place, so that its largest value is
        the sample. `tokens` were generated so far. The temperature must be above 0."""
        self._penalize(row, tokens)
        row /= np.float32(self._sampling.temperature or 1)
        threshold = self._threshold(row)
        if threshold is not None:
            row[row < threshold] -= _CUT
        row += self._noise(len(row), len(tokens))

    def _penalize(self, row: Row, tokens: Sequence[int]) -> None:
        presence = self._sampling.presence_penalty or 0.0
        frequency = self._sampling.frequency_penalty or 0.0
        if tokens and (frequency or presence):
            ids, counts = np.unique(np.array(tokens, np.intp), return_counts=True)
            row[ids] -= (presence + frequency * counts).astype(np.float32)

    def _threshold(self, row: Row) -> np.float32 | None:
        """Return the least value of a token that may be sampled; None: all may."""
        sampling = self._sampling
        thresholds: list[np.float32] = []
        if sampling.top_k and sampling.top_k < len(row):
            thresholds.append(np.partition(row, -sampling.top_k)[-sampling.top_k])
        if sampling.top_p and sampling.top_p < 1:
            thresholds.append(row[_nucleus(row, sampling.top_p)[-1]])
        if sampling.min_p:
            thresholds.append(np.float32(row.max() + np.log(sampling.min_p)))
        return max(thresholds) if thresholds else None

    def _noise(self, num_values: int, num_tokens: int) -> Row:
        """Return values with a Gumbel distribution, `(num_values,)`."""
        seed = (self._sampling.seed or 0) % _UINT64
        bits = np.random.Philox(key=seed, counter=[0, num_tokens, 0, 0])
        draws = np.random.Generator(bits).standard_exponential(num_values, dtype=np.float32)
        # A draw may be 0, whose logarithm would make any token the sample.
        np.maximum(draws, np.finfo(np.float32).tiny, out=draws)
        return -np.log(draws)
