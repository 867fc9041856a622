"""Batches of texts of about the same length, in turns of lengths and keys. Texts wait by size, the
powers of two of their tokens. After a batch of a larger size comes the smallest size that waits,
and after a batch of the smallest the size of the text that has waited longest. Within a size the
keys take turns by tokens."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinery_serving.engine.fair_queue import FairQueue, Lane

TokenArray = npt.NDArray[np.int32]
_BESIDE_TOKENS = 16  # the memory of a waiting text beside its tokens, as a number of tokens


@dataclass(eq=False, slots=True)
class WaitingText:
    """A text of a request. `owner` is the request, compared by identity."""

    owner: object
    index: int  # in its request
    lane: Lane
    token_ids: TokenArray  # (num_tokens,)
    second_start: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def size(self) -> int:
        return (self.num_tokens - 1).bit_length()

    @property
    def cost(self) -> int:
        """Its memory, as a number of tokens."""
        return self.num_tokens + _BESIDE_TOKENS


class WaitingTexts:
    def __init__(self, max_batch_tokens: int) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._sizes: dict[int, FairQueue[WaitingText]] = {}  # none is empty
        self._texts: OrderedDict[WaitingText, None] = OrderedDict()  # by arrival
        self._costs: Counter[Lane] = Counter()  # of the texts of each key
        self._last_size = 0

    def __len__(self) -> int:
        return len(self._texts)

    def cost(self, lane: Lane | None = None) -> int:
        """The memory of a key's texts, or of all texts, as a number of tokens."""
        return self._costs.total() if lane is None else self._costs[lane]

    def add(self, texts: Iterable[WaitingText]) -> None:
        for text in texts:
            queue = self._sizes.setdefault(text.size, FairQueue(lambda each: each.num_tokens))
            queue.add(text, text.lane)
            self._texts[text] = None
            self._costs[text.lane] += text.cost

    def drop(self, texts: Iterable[WaitingText]) -> None:
        """Remove those of the texts that still wait."""
        for text in texts:
            if text in self._texts:
                self._sizes[text.size].discard(text)
                self._forget(text)

    def next_batch(self) -> list[WaitingText]:
        """Remove and return the next texts: at least one, or as many as have `max_batch_tokens`
        with padding."""
        if not self._sizes:
            return []
        size = min(self._sizes)
        if size >= self._last_size:
            size = next(iter(self._texts)).size
        self._last_size = size
        queue, width = self._sizes[size], 0
        batch: list[WaitingText] = []
        while (text := queue.first_except(frozenset())) is not None:
            width = max(width, text.num_tokens)
            if batch and width * (len(batch) + 1) > self._max_batch_tokens:
                break
            queue.take(text)
            self._forget(text)
            batch.append(text)
        return batch

    def _forget(self, text: WaitingText) -> None:
        del self._texts[text]
        if not len(self._sizes[text.size]):
            del self._sizes[text.size]
        self._costs[text.lane] -= text.cost
        if not self._costs[text.lane]:
            del self._costs[text.lane]
