"""Log-probabilities of the tokens of one row of logits.

They are of the model's own distribution, before bias, penalties, grammar and temperature,
unless a request asks for another (`LogprobsSpec`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from serving.transport.messages import LogprobsSpec, TokenLogprobs

Row = npt.NDArray[np.float32]  # (vocab_size,)

# The best of a row are looked for where its blocks are best: the greatest of each block are
# found at the speed of memory, a partition of all is twenty times slower. A block is a column
# of the row laid out in this many lines, since numpy compares whole lines at once. Between 32
# and 128 the number makes little difference.
_BLOCK: Final = 64
# JSON has no infinity. Other servers write this number for a token that cannot be.
_IMPOSSIBLE: Final = -9999.0


class RowLogprobs:
    """The distribution of one row, kept until the sampler has chosen from it."""

    def __init__(self, row: Row, spec: LogprobsSpec) -> None:
        """`row` may be changed afterwards: what is needed of it is kept."""
        values = row.astype(np.float32)
        if spec.temperature != 1:
            values /= np.float32(spec.temperature)
        if spec.top_p < 1:
            _keep_nucleus(values, spec.top_p)
        self._values = values
        self._log_sum = _log_sum_exp(values)
        best = top_ids(values, spec.num_top)
        others = [id_ for id_ in spec.token_ids if id_ not in best]
        self._told = (*best, *others)

    def of(self, token_id: int) -> TokenLogprobs:
        """What is told when this token was chosen."""
        value = self._values[token_id]
        rank = 1 + int(np.count_nonzero(self._values > value))
        told = tuple((id_, self._logprob(id_)) for id_ in self._told)
        return TokenLogprobs(self._logprob(token_id), rank, told)

    def _logprob(self, token_id: int) -> float:
        logprob = float(self._values[token_id]) - self._log_sum
        return logprob if math.isfinite(logprob) else _IMPOSSIBLE


def top_ids(row: Row, num: int) -> list[int]:
    """The ids of the greatest values, the greatest first; of equal ones the lowest id first."""
    num = min(num, len(row))
    if num == 0:
        return []
    candidates = _candidates(row, num)
    order = np.lexsort((candidates, -row[candidates]))
    return [int(id_) for id_ in candidates[order[:num]]]


def _candidates(row: Row, num: int) -> npt.NDArray[np.intp]:
    """Ids that hold the `num` greatest values, and all that equal the last of them."""
    num_blocks = len(row) // _BLOCK
    if num_blocks <= num:
        return np.flatnonzero(row >= np.partition(row, -num)[-num])
    blocks = row[: num_blocks * _BLOCK].reshape(_BLOCK, num_blocks)
    bests = blocks.max(axis=0)
    # At least `num` values are as great as this one: the best of `num` blocks.
    floor = np.partition(bests, -num)[-num]
    chosen = np.flatnonzero(bests >= floor)
    ids = (np.arange(_BLOCK)[:, None] * num_blocks + chosen).reshape(-1)
    ids = np.concatenate((ids, np.arange(num_blocks * _BLOCK, len(row))))
    found: npt.NDArray[np.intp] = ids[row[ids] >= floor]
    return found


def _log_sum_exp(row: Row) -> float:
    top = row.max()
    scratch = _scratch(len(row))
    np.subtract(row, top, out=scratch)
    np.exp(scratch, out=scratch)
    return float(top) + math.log(float(scratch.sum()))


@lru_cache(maxsize=1)
def _scratch(size: int) -> Row:
    """Memory for one calculation, of which there is one at a time: the engine has one thread.
    An array of this size may come from the system anew each time, and to touch fresh pages
    takes several times as long as the calculation."""
    return np.empty(size, np.float32)


def _keep_nucleus(row: Row, top_p: float) -> None:
    """Make every token outside of the smallest set with this probability impossible."""
    probabilities = np.exp(row - row.max())
    total = probabilities.sum(dtype=np.float64)
    # All that are less probable than this hold less than 1 - top_p together, so that none of
    # them is in the set, and the few others are quickly sorted.
    likely = np.flatnonzero(probabilities >= (1 - top_p) * total / len(row))
    order = likely[np.argsort(-row[likely], kind="stable")]
    # In doubles: thousands of small ones would vanish beside a large sum.
    before = np.cumsum(probabilities[order], dtype=np.float64) - probabilities[order]
    kept = order[before < top_p * total]
    values = row[kept]
    row.fill(-np.inf)
    row[kept] = values
