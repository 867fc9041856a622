"""Finds fixed strings in text that arrives in pieces: stop strings, tags.

Two questions are all that a caller needs: where does the first of the strings end in what
I have, and how much of the end of it must I hold back because it may begin one.
"""

from __future__ import annotations

from collections.abc import Iterable


class Literals:
    """A fixed set of strings, none of them empty.

    Where several are found, the first to be complete counts, and of those that end at the
    same place the longest. So the answer never depends on how the text was cut.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = tuple(dict.fromkeys(strings))
        if not all(self._strings):
            raise ValueError("an empty string is found everywhere")
        beginnings = {s[:size] for s in self._strings for size in range(1, len(s))}
        self._beginnings = tuple(sorted(beginnings, key=len, reverse=True))

    def find(self, text: str) -> tuple[int, int] | None:
        """Start and end of the first match in `text`; None when there is none."""
        found = [
            (start + len(string), start)
            for string in self._strings
            if (start := text.find(string)) >= 0
        ]
        if not found:
            return None
        end, start = min(found)
        return start, end

    def num_held(self, text: str) -> int:
        """How many characters at the end of `text` may begin a match: the most possible."""
        if not text.endswith(self._beginnings):
            return 0
        return next(len(begin) for begin in self._beginnings if text.endswith(begin))
