"""What ends a choice before the model does: stop strings in the answer's text, and tokens that
repeat a pattern."""

from collections import defaultdict, deque
from collections.abc import Sequence

from serving.core.request import Repetition
from serving.output.lexer import Literals


class StopStrings:
    """Passes text on until the first stop string is complete. `include` keeps the string.

    Text that may begin a stop string is held back, so a client never gets half of one. The
    result does not depend on how the text was cut into tokens.
    """

    def __init__(self, strings: Sequence[str], *, include: bool = False) -> None:
        self._literals = Literals(strings)
        self._include = include
        self._held = ""
        self.met: str | None = None  # the stop string that ended the text

    def feed(self, text: str) -> str:
        """Return the text to send now: "" while it is held back, and after the end."""
        if self.met is not None:
            return ""
        text = self._held + text
        found = self._literals.find(text)
        if found is not None:
            start, end = found
            self.met = text[start:end]
            self._held = ""
            return text[: end if self._include else start]
        num_sent = len(text) - self._literals.num_held(text)
        self._held = text[num_sent:]
        return text[:num_sent]

    def release(self) -> str:
        """Return what was held back, where no text that follows can complete it."""
        held, self._held = self._held, ""
        return held


class RepetitionDetector:
    """Sees when the last tokens of a choice repeat one pattern.

    A pattern of `size` tokens is at the end `count` times exactly when each of the last
    `size * (count - 1)` tokens equals the token `size` positions before it. So the detector
    counts, for each size, the length of such a run. Few tokens occur often within the longest
    size, and a token costs as many steps as it has occurrences there.
    """

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
