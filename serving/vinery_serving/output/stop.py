"""What ends a choice before the model does: stop strings in the answer's text, and tokens that
repeat a pattern."""

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from vinery_serving.core.request import Repetition

# The choices of a request have the same stop strings, and so have many requests.
_NUM_CACHED: Final = 16


class _Automaton:
    """Aho and Corasick's: reads a text once, whatever the number and length of the strings.

    A state is the longest end of the text so far that begins a string. State 0 is none. The
    automaton has as many states as the strings have characters.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        """Raises ValueError for an empty string, which is found everywhere."""
        self.next: list[dict[str, int]] = [{}]  # the state after each character that continues
        self.depth = [0]  # the characters of the state
        self.num_matched = [0]  # the length of the longest string that ends here; 0: none does
        for string in strings:
            self._add(string)
        self.shorter = self._links()  # the next shorter end of the text that begins a string
        self.begin = re.compile("|".join(map(re.escape, self.next[0])))

    def _add(self, string: str) -> None:
        if not string:
            raise ValueError("an empty string is found everywhere")
        state = 0
        for letter in string:
            following = self.next[state].get(letter)
            if following is None:
                following = self.next[state][letter] = len(self.next)
                self.next.append({})
                self.depth.append(self.depth[state] + 1)
                self.num_matched.append(0)
            state = following
        self.num_matched[state] = len(string)

    def _links(self) -> list[int]:
        shorter = [0] * len(self.next)
        states = list(self.next[0].values())
        for state in states:  # which grows: the shorter states first
            link = shorter[state]
            self.num_matched[state] = self.num_matched[state] or self.num_matched[link]
            for letter, following in self.next[state].items():
                at = link
                while at and letter not in self.next[at]:
                    at = shorter[at]
                shorter[following] = self.next[at].get(letter, 0)
                states.append(following)
        return shorter

    def after(self, state: int, letter: str) -> int:
        """Return the state after one more character."""
        while state and letter not in self.next[state]:
            state = self.shorter[state]
        return self.next[state].get(letter, 0)


@lru_cache(maxsize=_NUM_CACHED)
def _automaton(strings: tuple[str, ...]) -> _Automaton:
    return _Automaton(strings)


class StopStrings:
    """Passes text on until the first stop string is complete. `include` keeps the string.

    Text that may begin a stop string is held back, so a client never gets half of one. The
    result does not depend on how the text was cut into tokens. If several strings end at the
    same index, the longest one is met.
    """

    def __init__(self, strings: Sequence[str], *, include: bool = False) -> None:
        self._automaton = _automaton(tuple(strings))
        self._include = include
        self._state = 0
        self._held = ""
        self.met: str | None = None  # the stop string that ended the text

    def feed(self, text: str) -> str:
        """Return the text to send now: "" while it is held back, and after the end."""
        if self.met is not None:
            return ""
        automaton, state, at = self._automaton, self._state, 0
        whole = self._held + text
        while at < len(text):
            if state == 0:
                begin = automaton.begin.search(text, at)
                if begin is None:
                    break
                at = begin.start()
            state = automaton.after(state, text[at])
            at += 1
            if size := automaton.num_matched[state]:
                end = len(self._held) + at
                self.met = whole[end - size : end]
                self._held = ""
                return whole[: end if self._include else end - size]
        self._state = state
        num_sent = len(whole) - automaton.depth[state]
        self._held = whole[num_sent:]
        return whole[:num_sent]

    def release(self) -> str:
        """Return what was held back, where no text that follows can complete it."""
        held, self._held, self._state = self._held, "", 0
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
