"""Ends a choice before the model does: at stop strings in the answer's text, and at tokens that
repeat a pattern."""

from collections import defaultdict, deque
from collections.abc import Sequence
from functools import lru_cache

from vinery_serving.core.request import Repetition
from vinery_serving.output.lexer import Literals


# The choices of a request have the same stop strings, and so have many requests.
@lru_cache(maxsize=16)
def _literals(strings: tuple[str, ...]) -> Literals:
    return Literals(strings)


class StopStrings:
    """Passes text on until the first stop string is complete. `include` keeps the string. Text that
    may begin a stop string is held back. The result does not depend on how the text was cut into
    tokens. If several strings end at the same index, the longest one is met. Raises ValueError for
    an empty string."""

    def __init__(self, strings: Sequence[str], *, include: bool = False) -> None:
        self._literals = _literals(tuple(strings))
        self._include = include
        self._held = ""
        self.met: str | None = None  # the stop string that ended the text

    def feed(self, text: str) -> str:
        """Return the text to send now: "" while it is held back, and after the end."""
        if self.met is not None:
            return ""
        whole = self._held + text
        if (found := self._literals.find(whole)) is not None:
            start, end = found
            self.met, self._held = whole[start:end], ""
            return whole[: end if self._include else start]
        num_sent = len(whole) - self._literals.num_held(whole)
        self._held = whole[num_sent:]
        return whole[:num_sent]

    def release(self) -> str:
        """Return the held text, when no more text can complete a stop string."""
        held, self._held = self._held, ""
        return held


class RepetitionDetector:
    """Sees when the last tokens of a choice repeat one pattern. A pattern of `size` tokens is at
    the end `count` times exactly when each of the last `size * (count - 1)` tokens equals the token
    `size` positions before it. So the detector counts, for each size, the length of such a run. Few
    tokens occur often within the longest size, and a token costs as many steps as it has
    occurrences there."""

    def __init__(self, repetition: Repetition) -> None:
        self._repetition = repetition
        self._num_tokens = 0
        # The positions of each token, as far back as the longest pattern.
        self._positions: defaultdict[int, deque[int]] = defaultdict(deque)
        self._runs: dict[int, int] = {}  # by the size of the pattern

    def feed(self, token_id: int) -> bool:
        """Return whether the tokens so far end with a repetition."""
        wanted, here = self._repetition, self._num_tokens
        self._num_tokens += 1
        positions = self._positions[token_id]
        while positions and here - positions[0] > wanted.max_size:
            positions.popleft()
        sizes = [here - at for at in positions if here - at >= wanted.min_size]
        self._runs = {size: self._runs.get(size, 0) + 1 for size in sizes}
        positions.append(here)
        repeats = wanted.min_count - 1
        return any(run >= size * repeats for size, run in self._runs.items())
