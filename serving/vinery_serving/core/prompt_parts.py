"""Prompts in parts of 64 tokens, by which gateways and engines name what a prefix cache has.

A digest is of a prompt's beginning up to the end of a part, under the key of the cache, and is the
same in all processes. The last part may be incomplete: an answer follows it in the cache.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from zlib import crc32

PART_TOKENS: Final = 64
PART_BYTES: Final = 4 * PART_TOKENS
# The parts that one engine reports, and that a gateway keeps of each engine: a million tokens.
MAX_PARTS: Final = 1 << 14
_FACTOR: Final = 6364136223846793005  # the multiplier of Knuth's MMIX generator
_MASK: Final = (1 << 64) - 1


def digests(ids: bytes, cache_key: bytes | None) -> Iterator[int]:
    """Yield a digest for each part of a prompt, int32 `(num_tokens,)` as in `Submit`."""
    known = 0 if cache_key is None else int.from_bytes(cache_key[:8])
    for start in range(0, len(ids), PART_BYTES):
        known = (known * _FACTOR + crc32(ids[start : start + PART_BYTES]) + 1) & _MASK
        yield known


def seed(name: str) -> int:
    return crc32(name.encode()) * _FACTOR & _MASK


def rank(part: int, seed: int) -> int:
    """Return a number that puts things with seeds of names in another order for each part."""
    return (part ^ seed) * _FACTOR & _MASK


class KnownParts:
    """What an engine's prefix cache has, for a gateway: the parts that the engine has reported, and
    until it reports those that this process has sent."""

    def __init__(self) -> None:
        # The oldest first. The values are unused.
        self._reported: dict[int, None] = {}
        self._sent: dict[int, None] = {}

    def note_sent(self, parts: Iterable[int]) -> None:
        for part in parts:
            if part not in self._reported:
                _put(self._sent, part)

    def take(self, added: Iterable[int], dropped: Iterable[int]) -> None:
        for part in dropped:
            self._reported.pop(part, None)
            self._sent.pop(part, None)
        for part in added:
            self._sent.pop(part, None)
            _put(self._reported, part)

    def num_known(self, parts: Sequence[int]) -> int:
        """Return how many of the first parts are there."""
        for number, part in enumerate(parts):
            if part not in self._reported and part not in self._sent:
                return number
        return len(parts)


def _put(parts: dict[int, None], part: int) -> None:
    parts.pop(part, None)
    parts[part] = None
    if len(parts) > MAX_PARTS:
        del parts[next(iter(parts))]
