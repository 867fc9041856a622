"""What the prefix cache has, as far as an engine can follow GenAI, so that gateways choose well. A
new block of GenAI (2026.4.1) overwrites the one that was allocated or found longest ago, a prompt's
first block before its second. So the order and the room of the cache tell which parts are left. An
incomplete block is counted again when its conversation goes on, so the engine errs a little."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import numpy as np

from vinery_serving.core.prompt_parts import MAX_PARTS, PART_BYTES, PART_TOKENS, digests
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.prefix_cache import BLOCK

_MAX_REPORTED: Final = 256  # parts in one message


class CachedPrompts:
    def __init__(self, num_tokens: Callable[[], int]) -> None:
        """`num_tokens` tells how many tokens the cache has room for, at present."""
        self._room = num_tokens
        # To their tokens, in whole blocks. The part that is overwritten next comes first.
        self._parts: OrderedDict[int, int] = OrderedDict()
        self._num_tokens = 0
        # What no gateway knows yet, the newest last: whether a part was added, or dropped.
        self._changes: dict[int, bool] = {}
        self._noted: list[tuple[bytes, bytes | None, int]] = []

    def note_prompt(self, generation: Generation) -> None:
        """Note a prompt that was computed to its end, with what the cache had of it."""
        ids = generation.submit.prompt_ids
        self._note(generation, ids[: len(ids) // PART_BYTES * PART_BYTES])

    def note_end(self, generation: Generation) -> None:
        """Note what was computed of a prompt, and the answer."""
        ids = generation.submit.prompt_ids
        if generation.tokens:
            answer = np.array(generation.tokens, dtype="<i4").tobytes()
            self._note(generation, ids + answer, len(ids) // PART_BYTES)
        else:
            self._note(generation, ids[: 4 * generation.num_prefilled])

    def _note(self, generation: Generation, ids: bytes, first: int = 0) -> None:
        """Note the parts of a sequence. Those before the first new one are where they were."""
        if generation.connection is not None and not generation.is_echoed:
            self._noted.append((ids, generation.submit.cache_key, first))

    def tell_all(self) -> None:
        """Report all parts again, to a gateway that has just connected."""
        self._changes |= dict.fromkeys(self._parts, True)

    def clear(self) -> None:
        self._noted.clear()
        while self._parts:
            self._drop()

    def changes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the newest parts that were added, and that were dropped, since the last call."""
        for ids, key, first in self._noted:
            self._add(ids, key, first)
        self._noted.clear()
        room = self._room()
        while self._num_tokens > room or len(self._parts) > MAX_PARTS:
            self._drop()
        newest = [self._changes.popitem() for _ in range(min(_MAX_REPORTED, len(self._changes)))]
        added = tuple(part for part, is_added in newest if is_added)
        return added, tuple(part for part, is_added in newest if not is_added)

    def _add(self, ids: bytes, key: bytes | None, first: int) -> None:
        num_left = len(ids) // 4
        for number, part in enumerate(digests(ids, key)):
            if part not in self._parts:
                size = self._parts[part] = -(-min(num_left, PART_TOKENS) // BLOCK) * BLOCK
                self._num_tokens += size
                self._change(part, is_added=True)
            elif number >= first:
                self._parts.move_to_end(part)
            num_left -= PART_TOKENS

    def _drop(self) -> None:
        part, size = self._parts.popitem(last=False)
        self._num_tokens -= size
        self._change(part, is_added=False)

    def _change(self, part: int, *, is_added: bool) -> None:
        self._changes.pop(part, None)
        self._changes[part] = is_added
        if len(self._changes) > 2 * MAX_PARTS:
            del self._changes[next(iter(self._changes))]
