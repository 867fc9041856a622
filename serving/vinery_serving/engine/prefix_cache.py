"""Which prompts may share blocks of GenAI's prefix cache (measured with GenAI 2026.4.1).

**Cache salts.** The cache hashes token ids as they are given, while the graph takes them modulo the
vocabulary size (`engine/graph`). A prompt whose first ids are raised by multiples of that size
shares blocks only with prompts that are raised alike: as many ids as carry 64 bits of the key,
fewer than a block has.

**Partly filled blocks.** A new prompt that begins with an earlier sequence goes on in its last,
half-full block. Two such prompts that are added before either is prefilled get the same block, and
mix their tokens. (Where the prompt ends with the block, until the second token of the first
answer.) So if two prompts differ inside a block and an earlier sequence is a prefix of both, the
second waits until the first is prefilled.

**Half-prefilled blocks.** As soon as a block's first token is computed, the cache hashes the block
by all future tokens. A prompt that leaves before the last token is computed leaves wrong contents.
Later prompts with these tokens get another key (`PrefixBlocks.key_for`). Without support for keys,
a prompt is prefilled to the end before it leaves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from math import ceil, log2
from typing import Final

import numpy as np
import numpy.typing as npt

TokenArray = npt.NDArray[np.int64]  # (num_tokens,)
_Hashes = npt.NDArray[np.uint64]  # (num_tokens,)

BLOCK: Final = 32  # tokens in a block of the cache on the CPU; a GPU's blocks have half as many
_SALT_BITS: Final = 64
# How many prefixes are remembered; no cache has useful blocks of more.
_MAX_PREFIXES: Final = 1 << 18
_NEVER: Final = 1 << 62  # greater than the length of any prompt
# The multiplier of Knuth's MMIX generator. A hash collision only delays a prompt.
_FACTOR: Final = np.uint64(6364136223846793005)


def salt_prompt(prompt_ids: TokenArray, key: bytes, modulus: int, num_salts: int) -> TokenArray:
    """Return the prompt, int64 `(num_tokens,)`, with the salt of `key` in its first ids. `key` has
    at least 16 random bytes. Each changed id is raised by 1 to `num_salts` times `modulus`, never
    by 0 times, so it is not an id of a prompt without a key."""
    prompt_ids = prompt_ids.copy()
    num_changed = min(len(prompt_ids), ceil(_SALT_BITS / log2(num_salts)))
    rest = int.from_bytes(key)
    for index in range(num_changed):
        rest, number = divmod(rest, num_salts)
        prompt_ids[index] += (1 + number) * modulus
    return prompt_ids


@dataclass(frozen=True, slots=True)
class Prefill:
    token_ids: TokenArray
    # Tokens that were computed after the first step with this prompt; None: no step had it.
    first_chunk_end: int | None
    num_prefilled: int = 0  # tokens that are computed, at least
    key: bytes | None = None  # the cache key of the request


def is_exposed(num_prompt_tokens: int, num_generated: int) -> bool:
    # In half blocks, because a GPU's blocks are that short.
    ends_with_block = num_prompt_tokens % (BLOCK // 2) == 0
    return num_generated < (2 if ends_with_block else 1)


class PrefixBlocks:
    """Remembers where cached sequences may have ended, and which blocks are half-prefilled."""

    def __init__(self) -> None:
        # Both by the hash of a prefix, the least recent first.
        self._ends: dict[int, int] = {}  # values are unused
        self._half_prefilled: dict[int, int] = {}  # to the number of the event
        self._events = count()

    def can_prefill(self, token_ids: TokenArray, beside: Iterable[Prefill]) -> bool:
        """Whether this prompt gets no block to which a prompt of `beside` writes."""
        hashes = _prefix_hashes(token_ids).tolist() if self._ends else ()
        ends = (length for length, each in enumerate(hashes, 1) if each in self._ends)
        shortest_end = next(ends, _NEVER)
        for other in beside:
            # The other may have left partly filled blocks anywhere behind its first chunk.
            first_chunk_end = _NEVER if other.first_chunk_end is None else other.first_chunk_end
            shared_from = min(shortest_end, first_chunk_end)
            is_shared = shared_from < _NEVER
            if is_shared and _differ_inside_block(token_ids, other.token_ids, shared_from):
                return False
        return True

    def note_added(self, token_ids: TokenArray) -> None:
        self._note_ends(_prefix_hashes(token_ids)[-1:])

    def note_abandoned(self, prefill: Prefill) -> None:
        """Note a prompt that left half-prefilled: its first incomplete block has wrong contents."""
        if prefill.first_chunk_end is None:
            return
        hashes = _prefix_hashes(prefill.token_ids)
        self._note_ends(hashes[prefill.first_chunk_end - 1 :])
        num_tokens, num_prefilled = len(prefill.token_ids), prefill.num_prefilled
        if num_prefilled < num_tokens:
            # If the last computed block is full, a failed step may have allocated the next one.
            end = min(num_tokens, (num_prefilled // BLOCK + 1) * BLOCK)
            (hash_,) = _with_key(hashes[end - 1 : end], prefill.key).tolist()
            _put(self._half_prefilled, hash_, next(self._events))

    def key_for(self, token_ids: TokenArray, key: bytes | None) -> bytes | None:
        """Return the key under which this prompt meets no half-prefilled block, `key` if it can."""
        if not self._half_prefilled:
            return key
        hashes = _with_key(_prefix_hashes(token_ids), key).tolist()
        met = [self._half_prefilled[each] for each in hashes if each in self._half_prefilled]
        return sha256(repr((key, met)).encode()).digest() if met else key

    def _note_ends(self, hashes: _Hashes) -> None:
        for each in hashes.tolist():
            _put(self._ends, each, 0)


def _put(prefixes: dict[int, int], hash_: int, value: int) -> None:
    """Add as the most recent; drop the least recent, whose blocks the cache has evicted."""
    prefixes.pop(hash_, None)
    prefixes[hash_] = value
    if len(prefixes) > _MAX_PREFIXES:
        del prefixes[next(iter(prefixes))]


def _differ_inside_block(one: TokenArray, other: TokenArray, min_common: int) -> bool:
    """Whether the prompts have `min_common` first tokens in common and differ inside a block."""
    length = min(len(one), len(other))
    if length < min_common or not np.array_equal(one[:min_common], other[:min_common]):
        return False
    differs: npt.NDArray[np.bool_] = one[:length] != other[:length]
    num_common = int(differs.argmax()) if differs.any() else length
    are_equal = num_common == len(one) == len(other)
    return not are_equal and num_common % BLOCK != 0


def _prefix_hashes(token_ids: TokenArray) -> _Hashes:
    """Return the hash of each prefix, uint64 `(num_tokens,)`: of 1 token, of 2 tokens, ..."""
    powers = np.full(len(token_ids), _FACTOR).cumprod(dtype=np.uint64)
    terms = (token_ids.astype(np.uint64) + np.uint64(1)) * powers
    hashes: _Hashes = terms.cumsum(dtype=np.uint64)
    return hashes


def _with_key(hashes: _Hashes, key: bytes | None) -> _Hashes:
    """Return the hashes for one key, so that no other key learns which prompts were abandoned."""
    return hashes if key is None else hashes + np.uint64(int.from_bytes(key[:8]))
