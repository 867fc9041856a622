"""Grants output tokens to the answers of a request whose limits are counted.

The engine generates no token that was not granted. An answer whose next grant is late pauses,
and an answer after its last grant ends. So a quota holds even if a process in between fails.
"""

import math
from collections.abc import Mapping
from typing import Final, Protocol

# More tokens are requested when an answer has this many left, so that no answer pauses.
NUM_AHEAD: Final = 64
# The number of tokens of one request. A larger number reserves tokens that may stay unused; a
# smaller one requests too often.
NUM_EACH: Final = 64
_NEVER: Final = 1 << 62


class TokenSource(Protocol):
    @property
    def num_granted(self) -> int:
        """The tokens reserved so far for all answers of the request together."""

    @property
    def is_last(self) -> bool:
        """Whether no more tokens can be reserved."""

    async def extend(self, num_tokens: int) -> None:
        """Reserve `num_tokens` more, or the rest: then `is_last` becomes true."""


class TokenGrants:
    """Divides the tokens of a `TokenSource` among answers, by their ids: the grants of those in
    progress and what the others used are never more than `source.num_granted`."""

    def __init__(self, source: TokenSource, max_tokens: Mapping[int, int], spent: int = 0) -> None:
        """`spent`: so many tokens of `source` were used before."""
        self._source, self._num_spent = source, spent
        self._max_tokens = max_tokens
        self.num_granted = dict.fromkeys(max_tokens, 0)
        self._divide(source.num_granted - spent)
        # No answer needs more tokens before all of them together have used this many.
        self.next_check_at = self._next_check(dict.fromkeys(max_tokens, 0), 0)

    @property
    def is_last(self) -> bool:
        """Whether answers end with their present grants."""
        return self._source.is_last

    async def update(self, num_used: Mapping[int, int], num_used_in_all: int) -> list[int]:
        """Reserve tokens for the answers that need more. Returns the ids of those with other
        grants. `num_used` has the answers in progress; `num_used_in_all` counts all."""
        before, was_last = self.num_granted, self.is_last
        self.num_granted = {id_: before[id_] for id_ in num_used}
        num_closed = num_used_in_all - sum(num_used.values())
        due = [id_ for id_, used in num_used.items() if self._num_until_due(id_, used) <= 0]
        num_short = sum(map(self._num_missing, due)) - self._num_free(num_closed)
        if num_short > 0 and not was_last:
            await self._source.extend(num_short)
        if self.is_last:
            self._divide(self._num_free(num_closed))
        else:
            for id_ in due:
                self.num_granted[id_] += self._num_missing(id_)
        self.next_check_at = self._next_check(num_used, num_used_in_all)
        became_last = self.is_last and not was_last
        return [id_ for id_, num in self.num_granted.items() if became_last or num != before[id_]]

    def _next_check(self, num_used: Mapping[int, int], num_used_in_all: int) -> int:
        nearest = min((self._num_until_due(id_, used) for id_, used in num_used.items()), default=1)
        return num_used_in_all + max(1, nearest)

    def _num_until_due(self, id_: int, num_used: int) -> int:
        if self._num_missing(id_) == 0:
            return _NEVER
        return self.num_granted[id_] - num_used - NUM_AHEAD

    def _num_missing(self, id_: int) -> int:
        return min(NUM_EACH, self._max_tokens[id_] - self.num_granted[id_])

    def _num_free(self, num_closed: int) -> int:
        num_granted = self._source.num_granted - self._num_spent
        return num_granted - num_closed - sum(self.num_granted.values())

    def _divide(self, num_tokens: int) -> None:
        """Grant the tokens evenly; answers with small limits leave their rest to the others."""
        missing = {id_: self._max_tokens[id_] - num for id_, num in self.num_granted.items()}
        for num_others, id_ in zip(
            reversed(range(len(missing))), sorted(missing, key=missing.__getitem__), strict=True
        ):
            part = min(missing[id_], math.ceil(num_tokens / (num_others + 1)))
            self.num_granted[id_] += part
            num_tokens -= part
