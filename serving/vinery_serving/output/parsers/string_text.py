"""A growing string in a call, as the text of a JSON string. Valid JSON stays unchanged. Escapes of
other notations are translated. A backslash that begins no escape, a line break and a quote in the
text are escaped."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from typing import Final

from vinery_serving.output.lexer import EndOfText, Lexer, Literals, Reading, literals
from vinery_serving.output.parsers.string_ends import StringContext, count_brackets

_MAX_HELD: Final = 2048  # text after a tag in a string is not held back for longer than this

_JSON_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_UNFINISHED_JSON: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_PYTHON_ESCAPE: Final = re.compile(
    r"""\\(?: u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
          | u[0-9a-fA-F]{4}
          | U[0-9a-fA-F]{8}
          | x[0-9a-fA-F]{2}
          | N\{[^}"'\n]{0,96}\}
          | [0-7]{1,3}
          | [\s\S] )""",
    re.VERBOSE,
)
# The end of the text, where more text may make another escape.
_UNFINISHED_PYTHON: Final = re.compile(
    r"""\\(?: u[0-9a-fA-F]{0,3}
          | u[dD][89abAB][0-9a-fA-F]{2}(?: \\ (?: u[0-9a-fA-F]{0,3} )? )?
          | U[0-9a-fA-F]{0,7}
          | x[0-9a-fA-F]?
          | N(?: \{[^}"'\n]{0,96} )?
          | [0-7]{1,2}
          )? \Z""",
    re.VERBOSE,
)
# The characters after a backslash that mean the same to Python and to its codec `unicode_escape`.
_KNOWN_TO_PYTHON: Final = frozenset("\nabfnrtvxuUN\\'\"")
_DRIVE: Final = re.compile(r"[A-Za-z]:")  # a path of Windows without escapes. `Q:\nWho?` is none.
_NO_DRIVE: Final = "..."
_PATH_IN_PYTHON: Final = re.compile(r"\\(?:[^\W\dn]|n[a-z0-9_])")
_PATH_IN_JSON: Final = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_UNFINISHED_PATH: Final = re.compile(r"\\n?\Z")


class Escapes(Enum):
    """The escapes between a notation's quotes."""

    JSON = auto()
    PYTHON = auto()
    NONE = auto()


@cache
def _stops(quote: str, tags: tuple[str, ...], *, has_escapes: bool) -> re.Pattern[str]:
    marks = (quote, *(("\\",) if has_escapes else ()), *tags)
    return re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))))


def inside(text: str) -> str:
    """Return `text` as it is written between the quotes of a JSON string. Half of a surrogate pair
    could not be sent on as UTF-8."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)[1:-1]


def quoted(text: str) -> str:
    """Return `text` as a JSON string."""
    return f'"{inside(text)}"'


def respelled(raw: str, escapes: Escapes) -> str:
    """Return the JSON text of a string that is whole, from between its quotes."""
    parts: list[str] = []
    at = 0
    while (found := raw.find("\\", at)) >= 0:
        escape = _json_escape if escapes is Escapes.JSON else _python_escape
        size, text = escape(raw, found)
        parts += (inside(raw[at:found]), text)
        at = found + size
    return "".join((*parts, inside(raw[at:])))


@dataclass(slots=True)
class StringText:
    """Reads one string after the opening quote, and passes on its JSON text."""

    _lexer: Lexer
    _quote: str
    _escapes: Escapes
    _around: StringContext
    _write: Callable[[str], None]
    # Counts of unread characters: looked at, before the first tag, and with tags that are text.
    _num_ahead: int = 0
    _tag: int | None = None
    _num_sure: int = 0
    _is_at_quote: bool = False
    _own: Counter[str] = field(default_factory=Counter)  # the closing brackets that the text needs
    _head: str = ""  # the first characters
    _is_path: bool = False
    _is_raw: bool = False
    _stops: re.Pattern[str] = field(init=False)
    _beginnings: Literals = field(init=False)
    _may_be_raw: bool = field(init=False)

    def __post_init__(self) -> None:
        has_escapes = self._escapes is not Escapes.NONE
        self._stops = _stops(self._quote, self._around.tags, has_escapes=has_escapes)
        self._beginnings = literals(self._quote, *self._around.tags)
        # A line break or a quote without an escape shows that the string has no escapes.
        self._may_be_raw = self._escapes is Escapes.PYTHON and len(self._quote) == 1

    def read(self) -> Reading[None]:
        """Read up to and with the last quote, or up to the text that shows a missing quote."""
        self._write('"')
        try:
            while not (yield from self._read_part()):
                pass
        except EndOfText as end:
            if not self._ends_with_text(is_closed=end.is_closed):
                self._write_cut()
                raise
        self._write('"')

    def _read_part(self) -> Reading[bool]:
        """Read up to the next quote, escape or tag. Returns whether the string has ended."""
        lexer = self._lexer
        stop = self._stops.search(lexer.text, lexer.at + self._num_ahead)
        if stop is None:
            self._pass_on()
            yield
            return False
        self._num_ahead = stop.start() - lexer.at
        if self._has_held_enough():
            self._read_tags_as_text()
            return False
        if stop[0] == self._quote:
            return (yield from self._read_quote())
        if stop[0] == "\\":
            yield from self._read_escape()
        else:
            if self._tag is None and self._num_ahead >= self._num_sure:
                self._tag = self._num_ahead
            self._num_ahead += len(stop[0])
        return False

    def _pass_on(self) -> None:
        """Pass on the text so far, except possible syntax."""
        lexer = self._lexer
        end = len(lexer.text) - self._beginnings.num_held(lexer.text[lexer.at :])
        if self._tag is None:
            self._read_to(self._around.tail_at(lexer.text, lexer.at, end))
        self._num_ahead = max(self._num_ahead, end - lexer.at)
        if self._has_held_enough():
            self._read_tags_as_text()

    def _has_held_enough(self) -> bool:
        return self._tag is not None and self._num_ahead - self._tag > _MAX_HELD

    def _read_tags_as_text(self) -> None:
        """Read the held text again: no tag ends the string."""
        self._num_sure, self._tag, self._num_ahead = self._num_ahead, None, 0

    def _read_quote(self) -> Reading[bool]:
        lexer = self._lexer
        self._is_at_quote = True
        while (is_end := self._ends_at_quote()) is None:
            try:
                yield
            except EndOfText:
                if not self._ends_after_tag():
                    raise
                is_end = True
                break
        self._is_at_quote = False
        at = lexer.at + self._num_ahead
        if self._tag is not None:
            if not is_end:
                self._read_to(self._end_before(lexer.at + self._tag)[0])
                return True
            self._read_tags_as_text()
        elif is_end:
            self._read_to(at, at + len(self._quote))
            return True
        elif self._begins_member(at):
            self._read_to(self._around.tail_at(lexer.text, lexer.at, at))
            return True
        else:
            self._read_to(at, at + len(self._quote))
            self._write(inside(self._quote))
            self._is_raw = self._may_be_raw
        return False

    def _ends_at_quote(self) -> bool | None:
        at = self._lexer.at + self._num_ahead
        is_end = self._around.ends_at(self._lexer.text, at + len(self._quote))
        if is_end is False and self._tag is None and self._begins_member(at) is None:
            return None
        return is_end

    def _ends_after_tag(self) -> bool:
        """Whether the text ended with closing brackets after a quote, so that a tag before the
        quote belongs to the string."""
        rest = self._lexer.text[self._lexer.at + self._num_ahead + len(self._quote) :]
        return self._tag is not None and rest.lstrip().startswith(tuple(self._around.closing))

    def _begins_member(self, at: int) -> bool | None:
        text = self._lexer.text
        tail = text[self._around.tail_at(text, self._lexer.at, at) : at]
        return self._around.begins_member(tail, text, at)

    def _read_escape(self) -> Reading[None]:
        lexer = self._lexer
        if self._tag is not None:
            self._num_ahead += 2  # the escaped character may come later
            return
        self._read_to(lexer.at + self._num_ahead)
        while (escape := self._escape()) is None:
            yield
        size, text = escape
        self._move_to(lexer.at + size)
        self._write(text)
        self._add_to_head(_NO_DRIVE)

    def _escape(self) -> tuple[int, str] | None:
        """Return the size of the escape that comes next, and its JSON text. None: more text may
        change it."""
        text, at = self._lexer.text, self._lexer.at
        is_json = self._escapes is Escapes.JSON
        if (_UNFINISHED_JSON if is_json else _UNFINISHED_PYTHON).match(text, at):
            return None
        if _DRIVE.fullmatch(self._head):
            if _UNFINISHED_PATH.match(text, at):
                return None
            path = _PATH_IN_JSON if is_json else _PATH_IN_PYTHON
            self._is_path = path.match(text, at) is not None
        if self._is_raw:
            size = 2 if text.startswith(("\\", self._quote), at + 1) else 1
            return size, inside(text[at : at + size])
        if self._is_path:
            # A backslash is a backslash, also before the last quote.
            return 2 if text.startswith("\\\\", at) else 1, "\\\\"
        return _json_escape(text, at) if is_json else _python_escape(text, at)

    def _read_to(self, end: int, start: int | None = None) -> None:
        """Pass on the text up to an index, and go on after it or at `start`."""
        text = self._lexer.text[self._lexer.at : end]
        self._move_to(end if start is None else start)
        if text:
            self._add_to_head(text)
            count_brackets(text, self._own)
            self._is_raw = self._is_raw or (self._may_be_raw and "\n" in text)
            self._write(inside(text))

    def _add_to_head(self, text: str) -> None:
        self._head = (self._head + text[: len(_NO_DRIVE)])[: len(_NO_DRIVE)]

    def _move_to(self, at: int) -> None:
        self._num_sure -= at - self._lexer.at
        self._lexer.at = at
        self._num_ahead = 0

    def _end_before(self, end: int) -> tuple[int, bool]:
        return self._around.end_before(self._lexer.text, self._lexer.at, end, self._own)

    def _ends_with_text(self, *, is_closed: bool) -> bool:
        """Read up to the end of a string that ended before the text, without or with its quote.
        Returns whether the string ended."""
        lexer = self._lexer
        if self._is_at_quote and self._tag is None:
            at = lexer.at + self._num_ahead
            self._read_to(at, at + len(self._quote))
            return True
        if not (is_closed or self._tag is not None):
            return False
        end = len(lexer.text) if self._tag is None else lexer.at + self._tag
        string_end, has_closing = self._end_before(end)
        if not has_closing and not (is_closed and self._tag is not None):
            return False
        self._read_to(string_end)
        return True

    def _write_cut(self) -> None:
        """Pass on the rest of a string that is cut. The escape at its end may be cut, too."""
        rest = self._lexer.take_all()
        is_json = self._escapes is Escapes.JSON
        self._write(_CONTROL.sub(lambda found: inside(found[0]), rest) if is_json else inside(rest))


def _json_escape(text: str, at: int) -> tuple[int, str]:
    if escape := _JSON_ESCAPE.match(text, at):
        return len(escape[0]), escape[0]
    return (2, "'") if text.startswith("'", at + 1) else (1, "\\\\")


def _python_escape(text: str, at: int) -> tuple[int, str]:
    escape = _PYTHON_ESCAPE.match(text, at)
    assert escape is not None
    return len(escape[0]), inside(_meaning(escape[0]))


def _meaning(escape: str) -> str:
    """Return the text of an escape; an escape unknown to Python stays unchanged."""
    if escape[1] == "/":  # not Python's, but models that have read JSON write it
        return "/"
    if escape[1] in "01234567":
        return chr(int(escape[1:], 8))
    if escape[1] not in _KNOWN_TO_PYTHON:
        return escape
    try:
        text = escape.encode().decode("unicode_escape")
    except ValueError:
        return escape
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
