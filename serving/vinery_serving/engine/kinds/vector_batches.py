"""Batches of texts of about the same length, in turns of lengths and keys. Texts wait by size, the
powers of two of their tokens. After a batch of a larger size comes the smallest size that waits,
and after a batch of the smallest the size of the text that has waited longest. Within a size the
keys take turns, each with one text."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from vinery_serving.engine.fair_queue import Lane

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
    number: int = 0  # by arrival

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def size(self) -> int:
        return (self.num_tokens - 1).bit_length()


class _Size:
    """The texts of one size: the keys in turns, and each key's texts by arrival."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[Lane, deque[WaitingText]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    @property
    def oldest(self) -> int:
        return min(texts[0].number for texts in self._lanes.values())

    def add(self, text: WaitingText) -> None:
        self._lanes.setdefault(text.lane, deque()).append(text)

    def take(self, max_tokens: int) -> Iterator[WaitingText]:
        """Remove and yield the next texts, at least one, of at most so many tokens with padding."""
        width, number = 0, 0
        while self._lanes:
            lane, texts = next(iter(self._lanes.items()))
            width = max(width, texts[0].num_tokens)
            number += 1
            if number > 1 and width * number > max_tokens:
                return
            yield texts.popleft()
            self._lanes.move_to_end(lane)
            if not texts:
                del self._lanes[lane]

    def drop(self, owner: object, lane: Lane) -> list[WaitingText]:
        texts = self._lanes.get(lane, deque())
        kept = deque(text for text in texts if text.owner is not owner)
        if kept:
            self._lanes[lane] = kept
        else:
            self._lanes.pop(lane, None)
        return [text for text in texts if text.owner is owner]


class WaitingTexts:
    def __init__(self, max_batch_tokens: int) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._sizes: dict[int, _Size] = {}  # none is empty
        self._num_texts = 0
        self._costs: Counter[Lane] = Counter()  # of the texts of each key
        self._numbers = count(1)
        self._last_size = 0

    def __len__(self) -> int:
        return self._num_texts

    def cost(self, lane: Lane | None = None) -> int:
        """The memory of a key's texts, or of all texts, as a number of tokens."""
        return self._costs.total() if lane is None else self._costs[lane]

    def add(self, texts: Iterable[WaitingText]) -> None:
        for text in texts:
            text.number = next(self._numbers)
            self._sizes.setdefault(text.size, _Size()).add(text)
            self._count(text, 1)

    def drop(self, owner: object, lane: Lane) -> None:
        for size, texts in list(self._sizes.items()):
            for text in texts.drop(owner, lane):
                self._count(text, -1)
            if not texts:
                del self._sizes[size]

    def next_batch(self) -> list[WaitingText]:
        if not self._sizes:
            return []
        size = min(self._sizes)
        if size >= self._last_size:
            size = min(self._sizes, key=lambda each: self._sizes[each].oldest)
        self._last_size = size
        batch = list(self._sizes[size].take(self._max_batch_tokens))
        if not self._sizes[size]:
            del self._sizes[size]
        for text in batch:
            self._count(text, -1)
        return batch

    def _count(self, text: WaitingText, number: int) -> None:
        self._num_texts += number
        self._costs[text.lane] += number * (text.num_tokens + _BESIDE_TOKENS)
        if not self._costs[text.lane]:
            del self._costs[text.lane]
