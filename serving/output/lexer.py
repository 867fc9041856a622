"""Finds fixed strings (tags, stop strings) in text that arrives in parts.

What counts as a tag depends on where a parser is: inside a JSON string nothing does. So each
read names the tags that count. A part of a tag at the end of the text is held back.
"""

from __future__ import annotations

from collections.abc import Iterable


class Literals:
    """A fixed set of strings. Raises ValueError for an empty string.

    The first string that is complete is found, and the longest one of those that end at the
    same index. So the result does not depend on how the text was cut.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = tuple(dict.fromkeys(strings))
        if not all(self._strings):
            raise ValueError("an empty string is found everywhere")
        beginnings = {s[:size] for s in self._strings for size in range(1, len(s))}
        self._beginnings = tuple(sorted(beginnings, key=len, reverse=True))

    def find(self, text: str) -> tuple[int, int] | None:
        """Return start and end of the first match in `text`. None: there is no match."""
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
        """Return how many characters at the end of `text` may begin a match: the most possible."""
        if not text.endswith(self._beginnings):
            return 0
        return next(len(begin) for begin in self._beginnings if text.endswith(begin))


class Tag:
    """A literal tag of a family's syntax, with other spellings of the same meaning."""

    def __init__(self, text: str, *others: str) -> None:
        self.text = text
        self.texts = (text, *others)
        self.literals = Literals(self.texts)


class Lexer:
    """The text that a parser has not read yet."""

    def __init__(self) -> None:
        self.text = ""

    def feed(self, text: str) -> None:
        self.text += text

    def take_all(self) -> str:
        text, self.text = self.text, ""
        return text

    def skip_space(self) -> bool:
        """Drop white space. Return whether other text follows."""
        self.text = self.text.lstrip()
        return bool(self.text)

    def take_until(self, tag: Tag) -> tuple[str, bool]:
        """Take the text before the tag, and the tag. Return the text and whether the tag was
        found. Without the tag, take all text that cannot be its beginning."""
        before, found = self.take_until_any(tag)
        return before, bool(found)

    def take_until_any(self, tag: Tag) -> tuple[str, str]:
        """As `take_until`, but return the spelling that was found; "" without the tag."""
        match = tag.literals.find(self.text)
        if match is None:
            end = len(self.text) - tag.literals.num_held(self.text)
            match = end, end
        start, end = match
        taken, self.text = self.text[:end], self.text[end:]
        return taken[:start], taken[start:]

    def take_space_and(self, tag: Tag) -> bool | None:
        """Take white space and the tag after it. Return whether both were there, or None where
        that depends on text to come."""
        text = self.text.lstrip()
        for spelling in tag.texts:
            if text.startswith(spelling):
                self.text = text[len(spelling) :]
                return True
        return None if any(each.startswith(text) for each in tag.texts) else False
