"""Samples tokens in the logits hook, where the pipeline must not: beside a draft model.

GenAI 2026.4.1 reads one row too far after a draft token that it rejects, unless it decodes
greedily: the text loses tokens, or the step fails (openvinotoolkit/openvino.genai#4190). So the
pipeline decodes greedily there, and each row gets noise that makes its largest logit a sample of
the model's distribution (the Gumbel-max trick). The noise depends on the seed and on the number of
tokens before it: a row behind a rejected draft token wastes nothing, and an answer that goes on
elsewhere goes on with the same noise.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from vinery_serving.core.request import Sampling
from vinery_serving.engine.logprobs import Row

# Tokens outside `top_k`, `top_p` and `min_p` are far below the others, but stay possible: a
# grammar, which GenAI applies later, may forbid all others.
_CUT: Final = np.float32(1e6)
_UINT64: Final = 2**64


class TokenSampler:
    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def prepare(self, row: Row, tokens: Sequence[int]) -> None:
        """Change a row of logits, float32 `(vocab_size,)`, in place, so that its largest value is
        the sample. `tokens` are those generated so far. The temperature must be above 0."""
        self._penalize(row, tokens)
        row /= np.float32(self._sampling.temperature or 1)
        threshold = self._threshold(row)
        if threshold is not None:
            row[row < threshold] -= _CUT
        row += self._noise(len(row), len(tokens))

    def _penalize(self, row: Row, tokens: Sequence[int]) -> None:
        presence = self._sampling.presence_penalty or 0.0
        frequency = self._sampling.frequency_penalty or 0.0
        if not tokens or (frequency == 0 and presence == 0):
            return
        ids, counts = np.unique(np.array(tokens, np.intp), return_counts=True)
        penalties = presence + frequency * counts
        row[ids] -= penalties.astype(np.float32)

    def _threshold(self, row: Row) -> np.float32 | None:
        sampling = self._sampling
        thresholds: list[np.float32] = []
        if sampling.top_k and sampling.top_k < len(row):
            thresholds.append(np.partition(row, -sampling.top_k)[-sampling.top_k])
        if sampling.top_p and sampling.top_p < 1:
            thresholds.append(_nucleus(row, sampling.top_p))
        if sampling.min_p:
            thresholds.append(np.float32(row.max() + np.log(sampling.min_p)))
        return max(thresholds) if thresholds else None

    def _noise(self, num_values: int, num_tokens: int) -> Row:
        """Return values with a Gumbel distribution, `(num_values,)`."""
        bits = np.random.Philox(
            key=(self._sampling.seed or 0) % _UINT64, counter=[0, num_tokens, 0, 0]
        )
        draws = np.random.Generator(bits).standard_exponential(num_values, dtype=np.float32)
        # A draw may be 0, whose logarithm would make any token the sample.
        np.maximum(draws, np.finfo(np.float32).tiny, out=draws)
        return -np.log(draws)


def _nucleus(row: Row, top_p: float) -> np.float32:
    """Return the least logit of the smallest set of tokens whose probabilities add up to
    `top_p`."""
    falling = np.sort(row)[::-1]
    probabilities = np.exp(falling - falling[0], dtype=np.float64)
    sums = np.cumsum(probabilities)
    last = int(np.searchsorted(sums, top_p * sums[-1]))
    return np.float32(falling[min(last, len(falling) - 1)])
