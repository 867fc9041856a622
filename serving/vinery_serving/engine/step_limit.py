"""How long the next step may take, from what the steps before it have taken.

A step of n tokens never takes longer than n steps of one token: the weights are read once for all
of its tokens. So a size that was never computed is judged by smaller ones, and a size that was by
itself.
"""

from typing import Final

# However fast the steps were: a busy machine holds a step up, too.
LEAST_S: Final = 4.0
# A size that is new to the engine: a device may compile kernels for it first.
_FIRST_S: Final = 30.0
# How many times as long as before a step may take.
_FACTOR: Final = 20.0
# The longest step of a size is forgotten slowly: half of it after 700 shorter steps.
_FORGET: Final = 0.999
# After so many steps of a size, its kernels are compiled.
_NUM_FIRST: Final = 3


class StepLimits:
    """Knows the longest recent step of each size. Sizes are powers of two of tokens."""

    def __init__(self, ceiling_s: float) -> None:
        self._ceiling_s = ceiling_s
        self._longest_s: dict[int, float] = {}  # by size
        self._nums: dict[int, int] = {}

    def note(self, num_tokens: int, took_s: float) -> None:
        """A step of so many tokens has taken so long."""
        size = num_tokens.bit_length()
        self._longest_s[size] = max(took_s, self._longest_s.get(size, 0.0) * _FORGET)
        self._nums[size] = self._nums.get(size, 0) + 1

    def limit_s(self, num_tokens: int) -> float:
        """How long a step of so many tokens may take."""
        size = num_tokens.bit_length()
        longest_s = self._longest_s.get(size)
        if longest_s is not None and self._nums[size] >= _NUM_FIRST:
            return min(max(LEAST_S, _FACTOR * longest_s), self._ceiling_s)
        smaller = [
            took_s * (1 << (size - known))
            for known, took_s in self._longest_s.items()
            if known <= size
        ]
        if not smaller:
            return self._ceiling_s
        return min(max(_FIRST_S, _FACTOR * min(smaller)), self._ceiling_s)
