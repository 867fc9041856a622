"""Text that arrives in parts: finds fixed strings (tags, stop strings) in it. Each read names its
tags. A part of a tag at the end of the text is held back. Parsers are generators over a `Lexer`: at
each `yield` a parser waits for more text, or gets `EndOfText`. After a `yield` no index is valid,
except the lexer's."""

import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final, TypeVar

ResultT = TypeVar("ResultT")
Reading = Generator[None, None, ResultT]

_SPACE: Final = re.compile(r"\s*")


class EndOfText(Exception):
    """The text is over. Raised at each `yield` of a parser. `is_closed`: by its own closing tag;
    otherwise the text may be cut."""

    def __init__(self, *, is_closed: bool = False) -> None:
        self.is_closed = is_closed


class UnexpectedText(Exception):
    """The next text does not fit the parser: it is no call, for example."""


class Literals:
    """A fixed set of strings. Raises ValueError for an empty string. The first complete string is
    found; of strings that end at the same index, the longest. So the result does not depend on how
    the text was cut."""

    def __init__(self, strings: Iterable[str]) -> None:
        self.strings = tuple(dict.fromkeys(strings))
        if not all(self.strings):
            raise ValueError("an empty string is found everywhere")
        self._sorted = sorted(self.strings)
        self._max_held = max(map(len, self.strings), default=1) - 1
        # The last letters of text that may be held: most texts do not end with these.
        self._ends = tuple({letter for string in self.strings for letter in string[:-1]})
        first_letters = {string[0] for string in self.strings}
        self._begin = re.compile("|".join(map(re.escape, first_letters)) or r"(?!)")

    def find(self, text: str) -> tuple[int, int] | None:
        """Return start and end of the first match in `text`. None: there is no match."""
        found = [
            (start + len(string), start)
            for string in self.strings
            if (start := text.find(string)) >= 0
        ]
        if not found:
            return None
        end, start = min(found)
        return start, end

    def num_held(self, text: str) -> int:
        """Return how many characters at the end of `text` may begin a match: the most possible."""
        if not text.endswith(self._ends):
            return 0
        # Names of a request's tools may be among the strings, so there may be many: all their
        # beginnings would be too many to compare with each token.
        for begin in self._begin.finditer(text, max(0, len(text) - self._max_held)):
            held = text[begin.start() :]
            at = bisect_right(self._sorted, held)
            if at < len(self._sorted) and self._sorted[at].startswith(held):
                return len(held)
        return 0


@cache
def literals(*strings: str) -> Literals:
    """Return a cached set of these strings, for the constants of a syntax."""
    return Literals(strings)


class Tag(Literals):
    """A literal tag of a family's syntax, with other spellings of the same meaning."""

    def __init__(self, text: str, *others: str) -> None:
        super().__init__((text, *others))
        self.text = text


class Lexer:
    def __init__(self) -> None:
        self.text = ""
        self.at = 0  # the index of the next character
        # The index of text that belongs to the answer unless it becomes a call. None: no such text.
        self.mark: int | None = None
        self.is_reasoning = False  # the text so far ends inside reasoning
        # Where all text from here on goes, past the parser. None: the parser reads it.
        self.write_rest: Callable[[str], None] | None = None

    def take_all(self) -> str:
        text, at = self.text, self.at
        self.at = len(text)
        return text[at:] if at else text

    def peek(self, skipped: re.Pattern[str] = _SPACE) -> Reading[str]:
        """Skip white space, or what `skipped` matches. Return the next character."""
        while True:
            self.at = match_end(skipped, self.text, self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            yield

    def peek_text(self, *texts: str, after: int = 0) -> Reading[str]:
        """Return which of these texts comes next, after some characters and white space, the
        longest if there are several; "" for other text."""
        num_space, most = after, max(map(len, texts))
        while True:
            start = match_end(_SPACE, self.text, self.at + num_space)
            num_space = start - self.at
            rest = self.text[start : start + most]
            found = max((text for text in texts if rest.startswith(text)), key=len, default="")
            if not any(len(text) > len(rest) and text.startswith(rest) for text in texts):
                return found
            try:
                yield
            except EndOfText:
                if not found:
                    raise
                return found

    def take(self, *texts: str) -> Reading[str]:
        """Read white space and one of these texts, and return it. Read nothing and return ""
        if other text comes next."""
        text = yield from self.peek_text(*texts)
        if text:
            self.at = match_end(_SPACE, self.text, self.at) + len(text)
        return text

    def take_run(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Read what `pattern` matches, once other text follows. It may match nothing. See
        `size_of_run`."""
        size = yield from self.size_of_run(pattern)
        run = self.text[self.at : self.at + size]
        self.at += size
        return run

    def size_of_run(self, pattern: re.Pattern[str], size: int = 0) -> Reading[int]:
        """Return how many characters `pattern` matches, once other text follows; `size` characters
        are known. The match continues where it stopped, so the pattern repeats one thing: `[a-z]*`,
        and not `[a-z]*[0-9]*`."""
        while (end := match_end(pattern, self.text, self.at + size)) == len(self.text):
            size = end - self.at
            yield
        return end - self.at

    def find(self, tag: Literals, most: int, size: int = 0) -> Reading[tuple[int, int] | None]:
        """Find a tag within the next `most` characters, after the first `size`. Returns the start
        and end of the tag, counted from the next character, and reads nothing."""
        while (found := tag.find(rest := self.text[self.at + size : self.at + most])) is None:
            size += len(rest) - tag.num_held(rest)
            if len(self.text) - self.at >= most:
                return None
            yield
        return size + found[0], size + found[1]

    def take_until(self, tag: Literals, write: Callable[[str], None]) -> Reading[str]:
        """Pass on the text before the tag while it grows. Read the tag and return the spelling that
        was found. A possible beginning of a tag is held back."""
        while True:
            text = self.text[self.at :]
            found = tag.find(text)
            if found is not None:
                start, end = found
                self.at += end
                write(text[:start])
                return text[start:end]
            num_sure = len(text) - tag.num_held(text)
            self.at += num_sure
            write(text[:num_sure])
            yield

    @contextmanager
    def after_call(self) -> Iterator[None]:
        """Text that is read here, after a call, is syntax if the output ends here or another call
        follows. The text is marked."""
        self.mark = self.at
        try:
            yield
        except EndOfText:
            self.mark = None
            raise


class Parser(Lexer):
    """Runs the generator that `read` returns over text while it arrives. The generator writes to an
    `EventWriter`, and holds back text that may be syntax. Text that is fed at once gives the same
    answer as its parts do, with fewer calls of the writer."""

    def __init__(
        self, read: Callable[[Lexer], Reading[None]], *, is_reasoning: bool = False
    ) -> None:
        super().__init__()
        self.is_reasoning = is_reasoning
        self._reading = read(self)
        next(self._reading)

    def feed(self, text: str) -> None:
        if self.write_rest is not None:
            self.write_rest(text)
            return
        # Text that was read and is not marked is dropped.
        if self.mark is None:
            rest = self.text[self.at :]
            self.text = rest + text if rest else text
            self.at = 0
        else:
            self.text = self.text[self.mark :] + text
            self.at -= self.mark
            self.mark = 0
        next(self._reading, None)

    def close(self) -> None:
        """End the text at its closing tag; more text follows the tag."""
        self.finish(is_closed=True)

    def finish(self, *, is_closed: bool = False) -> None:
        """Release the held text. A call that is cut in its arguments stays open."""
        with suppress(EndOfText, StopIteration):
            while True:
                self._reading.throw(EndOfText(is_closed=is_closed))


def match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of the match of `pattern` at an index; the index itself without a match."""
    match = pattern.match(text, at)
    return match.end() if match else at
