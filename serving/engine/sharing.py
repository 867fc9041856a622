"""What must be kept from the prefix cache, because it would mix prompts up (GenAI 2026.4.1).

**Half-full blocks.** It also keeps the last block of a sequence that ended in the middle of it,
and lets a new prompt that begins with this sequence go on in that block. Two such prompts
that are added before either has been read get the same block: each writes its own words over
the other's, one client is answered what another asked, and the cache keeps the mixture. It
takes nothing more than a short prompt, and then two at once that go on from it differently.
(Once the first has been read, the second gets a copy; where the prompt ends with the block,
once it has made a second token: until then the cache still knows the full block by the words
that were in it before.) So of prompts that part inside of a
block, the second waits for the first to be read, if there was ever a sequence to go on from.
That is rare: such a sequence has a whole earlier prompt for its beginning, so that one must
be the beginning of both.

**Half-read blocks.** The cache knows a block by all the words that it will hold as soon as the
first of them is read. A prompt that leaves before the last of them has been read leaves a
block behind that is not what it says, and whoever begins with the same words is answered
nonsense. So these go by another key from then on, under which the cache knows nothing of that
block (`key_for`); where a model has no place for keys, a prompt is read to its end before it
leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int64]

# Tokens in a block of the cache: 32 on the CPU, and half of it on a GPU.
BLOCK: Final = 32
# Of so many prompts the ends are known; no cache has blocks of more that are worth finding.
_MAX_ENDS: Final = 1 << 18
# A length that no prompt has.
_NEVER: Final = 1 << 62
# Knuth's, of MMIX. What falls on one number by chance only waits for nothing.
_FACTOR: Final = np.uint64(6364136223846793005)


@dataclass(frozen=True, slots=True)
class Reading:
    """A prompt inside the pipeline that has not been read to its end."""

    token_ids: TokenIds
    # How much of it there was after the first step that read a part of it; None: no step has.
    first_stop: int | None
    num_read: int = 0  # tokens, at least
    key: bytes | None = None  # what its own part of the cache goes by


def is_exposed(num_prompt_tokens: int, num_made: int) -> bool:
    """Whether another prompt could still get a block that this one has filled itself."""
    # By half a block, because on a GPU blocks are as short.
    ends_with_block = num_prompt_tokens % (BLOCK // 2) == 0
    return num_made < (2 if ends_with_block else 1)


class SharedBlocks:
    """Remembers where sequences may have ended, and what was left half-read."""

    def __init__(self) -> None:
        # By the sum of a beginning, the least recent first.
        self._ends: dict[int, int] = {}  # the values mean nothing
        self._half_read: dict[int, int] = {}  # with the number of the event
        self._events = count()

    def may_read(self, token_ids: TokenIds, beside: Iterable[Reading]) -> bool:
        """Whether this prompt cannot get a block that one of those writes to."""
        shortest_end = self._shortest_end(token_ids)
        for other in beside:
            # From its first stop on it may have left half-full blocks anywhere.
            first_stop = _NEVER if other.first_stop is None else other.first_stop
            shared_from = min(shortest_end, first_stop)
            if shared_from < _NEVER and _part_inside(token_ids, other.token_ids, shared_from):
                return False
        return True

    def _shortest_end(self, token_ids: TokenIds) -> int:
        """The length of the shortest earlier sequence that this prompt begins with."""
        sums = _sums(token_ids).tolist() if self._ends else ()
        return next((length for length, each in enumerate(sums, 1) if each in self._ends), _NEVER)

    def note_end(self, token_ids: TokenIds) -> None:
        """A sequence may end with this prompt, or after it."""
        self._note(_sums(token_ids)[-1:].tolist())

    def note_cut(self, reading: Reading) -> None:
        """This prompt is given up: a sequence may have ended anywhere in it behind its first
        stop, and the first block that has not been read to its end is not what it says."""
        if reading.first_stop is None:
            return
        sums = _sums(reading.token_ids)
        self._note(sums[reading.first_stop - 1 :].tolist())
        half_read_to = _end_of_half_read_block(reading)
        if half_read_to:
            sum_ = _of_key(sums[half_read_to - 1 : half_read_to], reading.key).tolist()[0]
            _put(self._half_read, sum_, next(self._events))

    def key_for(self, token_ids: TokenIds, key: bytes | None) -> bytes | None:
        """The key under which this prompt meets no half-read block: its own, if it can."""
        if not self._half_read:
            return key
        sums = _of_key(_sums(token_ids), key).tolist()
        met = [self._half_read[each] for each in sums if each in self._half_read]
        return sha256(repr((key, met)).encode()).digest() if met else key

    def _note(self, sums: list[int]) -> None:
        for each in sums:
            _put(self._ends, each, 0)


def _put(kept: dict[int, int], each: int, value: int) -> None:
    """As the most recent. The least recent is let go where there are too many: none of the
    cache's blocks is as old, since nobody has come back to it."""
    kept.pop(each, None)
    kept[each] = value
    if len(kept) > _MAX_ENDS:
        del kept[next(iter(kept))]


def _end_of_half_read_block(reading: Reading) -> int:
    """How many of the prompt's first tokens say that they lead to it; 0: there is none."""
    num_tokens, num_read = len(reading.token_ids), reading.num_read
    if num_read >= num_tokens:
        return 0
    # Where the last that was read is full, the next may have been taken by a failed step.
    return min(num_tokens, (num_read // BLOCK + 1) * BLOCK)


def _part_inside(one: TokenIds, other: TokenIds, at_least: int) -> bool:
    """Whether they have so many first tokens in common, and then part inside of a block."""
    length = min(len(one), len(other))
    if length < at_least or not np.array_equal(one[:at_least], other[:at_least]):
        return False
    differs: npt.NDArray[np.bool_] = one[:length] != other[:length]
    num_common = int(differs.argmax()) if differs.any() else length
    are_equal = num_common == len(one) == len(other)
    return not are_equal and num_common % BLOCK != 0


def _sums(token_ids: TokenIds) -> npt.NDArray[np.uint64]:
    """A number for each beginning of the prompt, of the first token, of the first two..."""
    powers = np.full(len(token_ids), _FACTOR).cumprod(dtype=np.uint64)
    terms = (token_ids.astype(np.uint64) + np.uint64(1)) * powers
    sums: npt.NDArray[np.uint64] = terms.cumsum(dtype=np.uint64)
    return sums


def _of_key(sums: npt.NDArray[np.uint64], key: bytes | None) -> npt.NDArray[np.uint64]:
    """The same for one key alone: nobody learns from the cache what others have given up."""
    return sums if key is None else sums + np.uint64(int.from_bytes(key[:8]))
