"""A value in another notation than JSON (Python's, Gemma's), as JSON text while it grows.

Nothing is evaluated: the value is respelled part by part, so that a long string reaches the
client while the model still writes it.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from serving.output.lexer import Literals

_SPACE: Final = re.compile(r"\s*")
_ESCAPE: Final = re.compile(
    r"""\\(?: u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
          | u[0-9a-fA-F]{4}
          | U[0-9a-fA-F]{8}
          | x[0-9a-fA-F]{2}
          | N\{[^}]*\}
          | [0-7]{1,3}
          | [\s\S] )""",
    re.VERBOSE,
)
# The end of the text, where more of it may make another escape.
_UNFINISHED: Final = re.compile(
    r"""\\(?: u[0-9a-fA-F]{0,3}
          | u[dD][89abAB][0-9a-fA-F]{2}(?: \\ (?: u[0-9a-fA-F]{0,3} )? )?
          | U[0-9a-fA-F]{0,7}
          | x[0-9a-fA-F]?
          | N(?: \{[^}"'\n]* )?
          | [0-7]{1,2}
          )? \Z""",
    re.VERBOSE,
)
_MEANINGS: Final = {
    "\n": "",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    # Not Python's, but models that have read JSON write it.
    "/": "/",
    "\\": "\\",
    "'": "'",
    '"': '"',
}
_WORDS: Final = {
    "True": "true",
    "true": "true",
    "False": "false",
    "false": "false",
    "None": "null",
    "null": "null",
}
_JSON_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Notation:
    """How a family writes values.

    `quotes`: the marks around a string, longer marks first. `escaping`: the marks between which
    a backslash begins an escape. `word` and `key_word`: the characters of an unquoted value or
    key. `arrays`: the opening brackets of arrays.
    """

    quotes: tuple[str, ...]
    escaping: frozenset[str]
    word: re.Pattern[str]
    key_word: re.Pattern[str]
    arrays: str = "["
    # A word that is no value is a string without its quotes.
    has_bare_strings: bool = False


PYTHON: Final = Notation(
    quotes=('"""', "'''", '"', "'"),
    escaping=frozenset(('"""', "'''", '"', "'")),
    word=re.compile(r"[^\s,:=()\[\]{}\"']*"),
    key_word=re.compile(r"[^\s,:=()\[\]{}\"']*"),
    arrays="[(",
)
GEMMA: Final = Notation(
    quotes=('<|"|>', '"'),
    escaping=frozenset(('"',)),
    word=re.compile(r"[^,\]}]*"),
    key_word=re.compile(r"[^:,{}\[\]]*"),
    has_bare_strings=True,
)


class LiteralValue:
    """Reads one value. Feed it the same text again from where `take` stopped, with more at
    its end, until it is complete or broken."""

    def __init__(self, notation: Notation) -> None:
        self.is_complete = False
        self.is_broken = False
        self._notation = notation
        self._step: Callable[[str, int], int] = self._at_value
        # What closes the open brackets, the innermost last.
        self._closing: list[str] = []
        self._is_first = True
        self._is_key = False
        self._quote = ""
        self._marks = {quote: Literals([quote]) for quote in notation.quotes}
        self._json: list[str] = []

    def take(self, text: str, at: int) -> tuple[int, str]:
        """Return the index where it stopped in `text`, and the JSON text so far."""
        while not self.is_complete and not self.is_broken:
            step, start = self._step, at
            at = step(text, at)
            if self._step == step and at == start:
                break
        json_text, self._json = "".join(self._json), []
        return at, json_text

    def _at_value(self, text: str, at: int) -> int:
        at = _after_space(text, at)
        if at == len(text):
            return at
        if text[at] in self._notation.arrays:
            return self._open("[", "]" if text[at] == "[" else ")", at)
        if text[at] == "{":
            return self._open("{", "}", at)
        return self._at_scalar(text, at)

    def _at_scalar(self, text: str, at: int) -> int:
        """A string or a word. A mark that may begin a longer one waits."""
        for quote in self._notation.quotes:
            if text.startswith(quote, at):
                self._quote = quote
                self._json.append('"')
                self._step = self._in_string
                return at + len(quote)
            if quote.startswith(text[at:]):
                return at
        self._step = self._in_word
        return at

    def _in_word(self, text: str, at: int) -> int:
        pattern = self._notation.key_word if self._is_key else self._notation.word
        match = pattern.match(text, at)
        end = match.end() if match else at
        if end == len(text):
            return at
        value = self._word(text[at:end].strip())
        if value is None:
            self.is_broken = True
            return at
        is_quoted = value.startswith('"')
        self._json.append(f'"{value}"' if self._is_key and not is_quoted else value)
        return self._end_value(end)

    def _word(self, word: str) -> str | None:
        if not word:
            return None
        if self._is_key and self._notation.has_bare_strings:
            return _quoted(word)
        value = _WORDS.get(word) or _number(word)
        return _quoted(word) if value is None and self._notation.has_bare_strings else value

    def _in_string(self, text: str, at: int) -> int:
        end = text.find(self._quote, at)
        escape = text.find("\\", at, None if end < 0 else end)
        if escape >= 0 and self._quote in self._notation.escaping:
            self._write(text[at:escape])
            return self._take_escape(text, escape)
        if end >= 0:
            self._write(text[at:end])
            self._json.append('"')
            return self._end_value(end + len(self._quote))
        end = len(text) - self._marks[self._quote].num_held(text[at:])
        self._write(text[at:end])
        return end

    def _take_escape(self, text: str, at: int) -> int:
        escape = _ESCAPE.match(text, at)
        if escape is None or _UNFINISHED.match(text, at):
            return at
        self._write(_meaning(escape[0]))
        return escape.end()

    def _write(self, text: str) -> None:
        self._json.append(_quoted(text)[1:-1])

    def _open(self, bracket: str, closing: str, at: int) -> int:
        self._json.append(bracket)
        self._closing.append(closing)
        self._is_first = True
        self._step = self._at_item
        return at + 1

    def _at_item(self, text: str, at: int) -> int:
        """After an opening bracket or a comma: the next item, or the end."""
        at = _after_space(text, at)
        if at == len(text):
            return at
        if text[at] == self._closing[-1]:
            return self._close_bracket(at)
        if not self._is_first:
            self._json.append(", ")
        self._is_first = False
        self._is_key = self._closing[-1] == "}"
        self._step = self._at_scalar if self._is_key else self._at_value
        return at

    def _after_item(self, text: str, at: int) -> int:
        at = _after_space(text, at)
        if at == len(text):
            return at
        if text[at] == ",":
            self._step = self._at_item
            return at + 1
        if text[at] == self._closing[-1]:
            return self._close_bracket(at)
        self.is_broken = True
        return at

    def _after_key(self, text: str, at: int) -> int:
        at = _after_space(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            self.is_broken = True
            return at
        self._json.append(": ")
        self._is_key = False
        self._step = self._at_value
        return at + 1

    def _close_bracket(self, at: int) -> int:
        self._json.append("}" if self._closing.pop() == "}" else "]")
        return self._end_value(at + 1)

    def _end_value(self, at: int) -> int:
        if self._is_key:
            self._step = self._after_key
        elif self._closing:
            self._is_first = False
            self._step = self._after_item
        else:
            self.is_complete = True
        return at


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _quoted(text: str) -> str:
    """As a JSON string. Half of a surrogate pair could not be sent on as UTF-8."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)


def _number(word: str) -> str | None:
    """JSON's numbers stay unchanged. Python's others (`1_000`, `0x1f`, `.5`) are respelled."""
    if _JSON_NUMBER.fullmatch(word):
        return word
    try:
        value = ast.literal_eval(word)
        if isinstance(value, int | float):
            return json.dumps(value, allow_nan=False)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    return None


def _meaning(escape: str) -> str:
    """The text of an escape; the escape itself where Python does not know it."""
    kind, digits = escape[1], escape[2:]
    try:
        match kind:
            case "u" | "U" | "x" if digits:
                codes = digits.split("\\u")
                pair = "".join(chr(int(code, 16)) for code in codes)
                return pair.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            case "N" if digits:
                return unicodedata.lookup(digits[1:-1])
            case _ if kind in "01234567":
                return chr(int(escape[1:], 8))
    except (ValueError, KeyError, OverflowError):
        return escape
    return _MEANINGS.get(kind, escape)
