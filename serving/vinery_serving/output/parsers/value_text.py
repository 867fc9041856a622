"""The value in a call, as JSON text. What is surely valid JSON is passed on while it grows. All
other text waits for the end of the value, and is then respelled as a whole: the result does not
depend on how the text was cut."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Final

from vinery_serving.output.lexer import EndOfText, Lexer, Reading, UnexpectedText, literals
from vinery_serving.output.parsers.respelling import (
    AFTER_ITEM,
    AFTER_MEMBER,
    JSON,
    JSON_ESCAPE,
    MAX_TAIL,
    PYTHON,
    TAIL,
    Notation,
    Respelled,
    end_of_json,
    python_json,
    quote_or_escape,
    respelled,
)

# All lengths are bounded: text that does not match is looked at again with the next token.
_SPACE: Final = r"[ \t\r\n]{0,64}"
_KEY: Final = rf'{_SPACE}"(?:[^"\\\x00-\x1f]|{JSON_ESCAPE}){{0,128}}"{_SPACE}:'
_LEAF: Final = r"(?:true|false|null|-?(?:0|[1-9]\d{0,63})(?:\.\d{1,63})?(?:[eE][+-]?\d{1,9})?)"
_VALUE: Final = rf'{_SPACE}(?:[{{\["]|{_LEAF}(?={_SPACE}[,}}\]]))'
_CONTENT: Final = re.compile(rf'(?:[^"\\\x00-\x1f]+|{JSON_ESCAPE})*+')
_NAMED: Final = re.compile(r"""[\s{*]{0,64}["']?[\w.\-]{1,64}["']?\s{0,64}[=:]""")
_BLANK: Final = re.compile(r"\s*")
_LONGEST_QUOTE: Final = 3


class _State(Enum):
    """What comes next, as a pattern."""

    VALUE = _VALUE
    KEY = _KEY
    FIRST_ITEM = rf"{_SPACE}\]|{_VALUE}"
    FIRST_KEY = rf"{_SPACE}\}}|{_KEY}"
    AFTER_ITEM = rf'{_SPACE}(?:\]|,(?={_SPACE}["{{\[\d\-tfn]))'
    AFTER_MEMBER = rf"{_SPACE}(?:\}}|,(?={_KEY}))"
    STRING = _CONTENT.pattern
    END = ""


_STEPS: Final = {state: re.compile(state.value) for state in _State}


def _decided(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """The pattern where more text may follow."""
    return re.compile(pattern.pattern.replace(r"\Z", r"(?!)"))


_AFTER_QUOTE: Final = {"]": _decided(AFTER_ITEM), "}": _decided(AFTER_MEMBER)}


@dataclass(slots=True)
class JsonText:
    """Reads one value that a model writes as JSON, and passes on its growing JSON text. `tags` end
    the call or begin another call. `around`: the closing brackets that follow the value.
    `notation`: how the rest may be written where the text is no JSON."""

    _lexer: Lexer
    _write: Callable[[str], None]
    tags: tuple[str, ...] = ()
    around: str = ""
    notation: Notation = JSON
    _state: _State = _State.VALUE
    _open: list[str] = field(default_factory=list)  # closing brackets, the innermost last
    _passed: list[str] = field(default_factory=list)  # the text that was passed on
    _num_searched: int = 0  # unread characters in which no tag begins that ends the value

    def read(self) -> Reading[bool]:
        """Returns whether the value had all closing brackets; missing brackets are written where
        the call ends. Raises `UnexpectedText` for a text that is no value, and `EndOfText` for a
        cut value."""
        lexer = self._lexer
        try:
            while not (yield from self._has_ended()):
                yield
        except EndOfText as end:
            found = self._respelled()
            if not end.is_closed and not (found is not None and found.is_whole):
                self._write(lexer.take_all())
                raise
        else:
            if self._state is _State.END:
                return True
            found = self._respelled()
        if found is None:
            raise UnexpectedText
        self._write(found.text)
        lexer.at += found.end
        return found.is_whole

    def _has_ended(self) -> Reading[bool]:
        """Pass on what is surely JSON, up to the next tag. Returns whether the value has ended, by
        itself or with the tag."""
        lexer = self._lexer
        while True:
            tag_at = self._find_tag()
            self._advance(lexer.at + self._num_searched if tag_at is None else tag_at)
            if self._state is _State.END or tag_at is None:
                return self._state is _State.END
            num_of_string = yield from self._rest_of_string(tag_at - lexer.at)
            if num_of_string is None:
                return True
            self._num_searched = num_of_string

    def _find_tag(self) -> int | None:
        lexer, tags = self._lexer, literals(*self.tags)
        text = lexer.text[lexer.at + self._num_searched :]
        if (found := tags.find(text)) is not None:
            return lexer.at + self._num_searched + found[0]
        self._num_searched += len(text) - tags.num_held(text)
        return None

    def _rest_of_string(self, size: int) -> Reading[int | None]:
        """Return the characters before the quote that ends a string with a tag in it; None if the
        tag ends the call. `size`: the characters before the tag."""
        lexer = self._lexer
        before = _CONTENT.match(lexer.text, lexer.at, lexer.at + size)
        if self._state is not _State.STRING or before is None or before.end() < lexer.at + size:
            return None
        size = yield from _find_quote(lexer, '"', size)
        after = yield from lexer.size_of_run(_BLANK, size + 1)
        return size if lexer.text[lexer.at + after] in ",:}])" else None

    def _advance(self, end: int) -> None:
        lexer, start = self._lexer, self._lexer.at
        while self._state is not _State.END and self._step(end):
            pass
        if lexer.at > start:
            text = lexer.text[start : lexer.at]
            self._passed.append(text)
            self._num_searched = max(0, self._num_searched - len(text))
            self._write(text)

    def _step(self, end: int) -> bool:
        """Returns whether the next text, up to `end`, was read."""
        lexer = self._lexer
        if self._state is _State.STRING:
            return self._read_content(end)
        found = _STEPS[self._state].match(lexer.text, lexer.at, end)
        if found is None:
            return False
        lexer.at = found.end()
        match found[0][-1], self._state:
            case "{", _:
                self._open.append("}")
                self._state = _State.FIRST_KEY
            case "[", _:
                self._open.append("]")
                self._state = _State.FIRST_ITEM
            case '"', _:
                self._state = _State.STRING
            case ",", _State.AFTER_ITEM:
                self._state = _State.VALUE
            case ",", _:
                self._state = _State.KEY
            case ":", _:
                self._state = _State.VALUE
            case mark, _:
                if mark in "}]":
                    self._open.pop()
                self._end_value()
        return True

    def _end_value(self) -> None:
        self._state = _State.END
        if self._open:
            self._state = _State.AFTER_ITEM if self._open[-1] == "]" else _State.AFTER_MEMBER

    def _read_content(self, end: int) -> bool:
        """Read the content of a string, without its possible end; or with its quote, if the text
        after the quote fits."""
        lexer = self._lexer
        content = _CONTENT.match(lexer.text, lexer.at, end)
        assert content is not None
        at = content.end()
        after_quote = _AFTER_QUOTE[self._open[-1] if self._open else "}"]
        if lexer.text[at : min(at + 1, end)] == '"' and after_quote.match(lexer.text, at + 1, end):
            lexer.at = at + 1
            self._end_value()
            return True
        tail = TAIL.search(lexer.text, max(lexer.at, at - MAX_TAIL), at)
        assert tail is not None
        lexer.at = tail.start()
        return False

    def _respelled(self) -> Respelled | None:
        """The rest of the value, up to a tag or the end of the text."""
        tag_at, passed = self._find_tag(), "".join(self._passed)
        text = passed + self._lexer.text[self._lexer.at : tag_at]
        found = respelled(text, self.notation, around=self.around)
        if found is None or not found.text.startswith(passed):
            return None
        rest, size = found.text[len(passed) :], len(passed)
        return Respelled(rest, max(0, found.end - size), found.is_whole)


def read_arguments(
    lexer: Lexer, notation: Notation, tags: tuple[str, ...], *, is_strict: bool = False
) -> Reading[str]:
    """Read the arguments of a call in Python's notation (after its parenthesis) or in Gemma's, as a
    whole. Returns their JSON text, or unchanged text that begins with a name and cannot be read.
    Raises `UnexpectedText` for other text. `is_strict`: for anything but valid Python."""
    is_python = notation is PYTHON
    try:
        size = yield from _find_end(lexer, notation, tags, depth=int(is_python))
    except EndOfText as end:
        if not end.is_closed:
            raise
        found_tag = literals(*tags).find(lexer.text[lexer.at :])
        size = len(lexer.text) - lexer.at if found_tag is None else found_tag[0]
    text = lexer.text[lexer.at : lexer.at + size]
    if is_python and (args := _python_arguments(text)) is not None:
        lexer.at += size
        return args
    if is_strict:
        raise UnexpectedText
    opening, around = ("(", "]") if is_python else ("", "")
    found = respelled(text, notation, opening=opening, around=around)
    if found is None and not _NAMED.match(text):
        raise UnexpectedText
    lexer.at += size if found is None else found.end
    return text if found is None else found.text


def _python_arguments(text: str) -> str | None:
    """The JSON text of valid arguments up to their parenthesis, also of a dictionary in JSON after
    two stars."""
    as_json = text.removeprefix("**").removesuffix(")")
    if text.startswith("**{") and end_of_json(as_json) == len(as_json):
        return as_json
    args = python_json(f"dict({text}")
    return args if args is not None and args.startswith("{") else None


def _find_end(
    lexer: Lexer, notation: Notation, tags: tuple[str, ...], *, depth: int
) -> Reading[int]:
    """Return the number of characters up to and with the closing bracket that ends a value in
    `depth` brackets, or before a tag. Neither is in a string."""
    quotes = (notation.mark,) if notation.mark else notation.quotes
    marks, longest, size = _marks(quotes, tags), max(map(len, (*quotes, *tags))), 0
    while True:
        found = marks.search(lexer.text, lexer.at + size)
        is_quote = found is not None and found[0] in quotes
        if found is None or (is_quote and len(lexer.text) - found.start() < _LONGEST_QUOTE):
            start = len(lexer.text) - longest if found is None else found.start()
            size = max(size, start - lexer.at)
            yield
            continue
        size = found.end() - lexer.at
        if found[0] in quotes:
            size = len(found[0]) + (yield from _find_quote(lexer, found[0], size))
        elif found[0] in tags:
            return found.start() - lexer.at
        else:
            depth += 1 if found[0] in "{[(" else -1
            if depth == 0:
                return size


@cache
def _marks(quotes: tuple[str, ...], tags: tuple[str, ...]) -> re.Pattern[str]:
    marks = sorted((*quotes, *tags, *"{[()]}"), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, marks)))


def _find_quote(lexer: Lexer, quote: str, size: int) -> Reading[int]:
    """Return how many characters stand before the next quote; `size` characters are known."""
    marks = quote_or_escape(quote)
    while (found := marks.search(lexer.text, lexer.at + size)) is None or found[0] != quote:
        if found is not None:
            size = found.end() - lexer.at
        else:
            # The last characters may be the beginning of a quote, or of an escape.
            size = max(size, len(lexer.text) - lexer.at - len(quote))
            yield
    return found.start() - lexer.at
