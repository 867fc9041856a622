"""Log-probabilities of the tokens of one row of logits.

They are of the model's own distribution, before bias, penalties, grammar and temperature, unless
the request asks for another one (`LogprobsSpec`).
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from vinery_serving.transport.messages import LogprobsSpec, TokenLogprobs

Row = npt.NDArray[np.float32]  # (vocab_size,)

# The top tokens of a row are searched in its best blocks: the maximum of each block is found at
# memory speed, while a partition of the whole row is twenty times slower. A block is a column of
# the row laid out in this many lines, because numpy compares whole lines at once. Measured
# between 32 and 128, the number makes little difference.
_BLOCK: Final = 64
# JSON has no infinity. vLLM also writes this number for an impossible token.
_IMPOSSIBLE: Final = -9999.0


class RowLogprobs:
    """The distribution of one row, kept until the sampler has chosen a token."""

    def __init__(self, row: Row, spec: LogprobsSpec) -> None:
        """Copies the row, so the caller may change it afterwards."""
        values = row.astype(np.float32)
        if spec.temperature != 1:
            values /= np.float32(spec.temperature)
        if spec.top_p < 1:
            _keep_nucleus(values, spec.top_p)
        self._values = values
        self._log_sum = _log_sum_exp(values)
        best = top_ids(values, spec.num_top)
        others = [id_ for id_ in spec.token_ids if id_ not in best]
        self._reported_ids = (*best, *others)

    def of(self, token_id: int) -> TokenLogprobs:
        """Return what is reported if the sampler chose this token."""
        value = self._values[token_id]
        rank = 1 + int(np.count_nonzero(self._values > value))
        others = tuple((id_, self._logprob(id_)) for id_ in self._reported_ids)
        return TokenLogprobs(self._logprob(token_id), rank, others)

    def _logprob(self, token_id: int) -> float:
        logprob = float(self._values[token_id]) - self._log_sum
        return logprob if math.isfinite(logprob) else _IMPOSSIBLE


def top_ids(row: Row, num: int) -> list[int]:
    """Return the ids of the `num` greatest values in descending order; equal ones by id."""
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
    # At least `num` values are as great as this one: the maxima of `num` blocks.
    threshold = np.partition(bests, -num)[-num]
    chosen = np.flatnonzero(bests >= threshold)
    ids = (np.arange(_BLOCK)[:, None] * num_blocks + chosen).reshape(-1)
    ids = np.concatenate((ids, np.arange(num_blocks * _BLOCK, len(row))))
    candidates: npt.NDArray[np.intp] = ids[row[ids] >= threshold]
    return candidates


def _log_sum_exp(row: Row) -> float:
    top = row.max()
    scratch = _scratch(len(row))
    np.subtract(row, top, out=scratch)
    np.exp(scratch, out=scratch)
    return float(top) + math.log(float(scratch.sum()))


@lru_cache(maxsize=1)
def _scratch(size: int) -> Row:
    """Return memory that the only thread reuses: touching fresh pages would take longer."""
    return np.empty(size, np.float32)


def _keep_nucleus(row: Row, top_p: float) -> None:
    """Make every token outside the smallest set with probability `top_p` impossible."""
    probabilities = np.exp(row - row.max())
    total = probabilities.sum(dtype=np.float64)
    # All tokens below this probability hold less than 1 - top_p together, so none of them is in
    # the set. The few others are sorted quickly.
    likely = np.flatnonzero(probabilities >= (1 - top_p) * total / len(row))
    order = likely[np.argsort(-row[likely], kind="stable")]
    # In float64: thousands of small values would vanish beside a large float32 sum.
    before = np.cumsum(probabilities[order], dtype=np.float64) - probabilities[order]
    kept = order[before < top_p * total]
    values = row[kept]
    row.fill(-np.inf)
    row[kept] = values
