"""How many tokens the answers to a request may have together, where somebody counts them.

The engine makes no token that was not granted: an answer whose next grant is late pauses, and
one that can have no more ends. So a quota holds whatever the processes between are doing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Protocol

# So few tokens of an answer are left when more are asked for, so that it need not pause.
NUM_AHEAD: Final = 64
# So many are asked for at a time. More would keep tokens from others that may never be used;
# fewer would ask too often.
NUM_EACH: Final = 64
_NEVER: Final = 1 << 62


class Allowance(Protocol):
    """Grows while a request runs, until there is no more."""

    @property
    def num_granted(self) -> int:
        """Tokens of all answers together, so far."""

    @property
    def is_last(self) -> bool:
        """Whether no more can be had."""

    async def extend(self, num_tokens: int) -> None:
        """Ask for more."""


class Shares:
    """What each answer may have of an allowance, by its id.

    At any time the shares of those that are being written, and what the others have used,
    are together no more than what was granted.
    """

    def __init__(self, allowance: Allowance, num_wanted: Mapping[int, int]) -> None:
        """`num_wanted` are the tokens that each may have by its own limit."""
        self._allowance = allowance
        self._num_wanted = num_wanted
        self.num_shared = dict.fromkeys(num_wanted, 0)
        self._divide(allowance.num_granted)
        # No answer can be near its end before so many tokens of all are used.
        self.look_at = self._next_look(dict.fromkeys(num_wanted, 0), 0)

    @property
    def is_last(self) -> bool:
        """Whether answers end with their shares."""
        return self._allowance.is_last

    async def follow(self, num_used: Mapping[int, int], num_used_in_all: int) -> list[int]:
        """Ask for more where answers come near the end of their shares. Returns those of
        whose shares there is news.

        `num_used` is of those that are being written, `num_used_in_all` of all of them.
        """
        before, was_last = self.num_shared, self.is_last
        self.num_shared = {id_: before[id_] for id_ in num_used}
        num_closed = num_used_in_all - sum(num_used.values())
        due = [id_ for id_, used in num_used.items() if self._num_until_due(id_, used) <= 0]
        num_due = sum(map(self._num_missing, due))
        num_short = num_due - self._num_free(num_closed)
        if num_short > 0 and not was_last:
            await self._allowance.extend(num_short)
        if self.is_last:
            self._divide(self._num_free(num_closed))
        else:
            for id_ in due:
                self.num_shared[id_] += self._num_missing(id_)
        self.look_at = self._next_look(num_used, num_used_in_all)
        is_news = self.is_last and not was_last
        return [id_ for id_, num in self.num_shared.items() if is_news or num != before[id_]]

    def _next_look(self, num_used: Mapping[int, int], num_used_in_all: int) -> int:
        nearest = min((self._num_until_due(id_, used) for id_, used in num_used.items()), default=1)
        return num_used_in_all + max(1, nearest)

    def _num_until_due(self, id_: int, num_used: int) -> int:
        if self._num_missing(id_) == 0:
            return _NEVER
        return self.num_shared[id_] - num_used - NUM_AHEAD

    def _num_missing(self, id_: int) -> int:
        return min(NUM_EACH, self._num_wanted[id_] - self.num_shared[id_])

    def _num_free(self, num_closed: int) -> int:
        return self._allowance.num_granted - num_closed - sum(self.num_shared.values())

    def _divide(self, num_tokens: int) -> None:
        """Evenly; what one has no use for is for the others."""
        room = {id_: self._num_wanted[id_] - num for id_, num in self.num_shared.items()}
        for num_others, id_ in zip(
            reversed(range(len(room))), sorted(room, key=room.__getitem__), strict=True
        ):
            part = min(room[id_], math.ceil(num_tokens / (num_others + 1)))
            self.num_shared[id_] += part
            num_tokens -= part
