"""A growing value in a call, as JSON text: valid JSON unchanged, other notations translated. Models
write JSON, Python, Gemma's notation, or mixtures, and leave out quotes, commas and brackets.
Nothing is evaluated: the value is translated mark by mark while the model still writes it."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from vinery_serving.output.lexer import EndOfText, Lexer, Parser, Reading, UnexpectedText, literals
from vinery_serving.output.parsers.string_ends import Context, StringContext
from vinery_serving.output.parsers.string_text import Escapes, StringText, quoted, respelled

_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_WORDS: Final = _PYTHON_WORDS | {word: word for word in _PYTHON_WORDS.values()}
_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}
_SPACE: Final = re.compile(r"\s*")
_NO_JSON_SPACE: Final = re.compile(r"[^ \t\r\n]")
_JSON_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
# Possible numbers. Python converts longer numbers in more than linear time.
_PYTHON_NUMBER: Final = re.compile(r"[+-]?[0-9.][0-9a-fA-FxXoO_.+-]{0,63}")

# Text without quotes: a constant, or the words of a string that has lost its quotes.
_WORD: Final = re.compile(r"[^,;()\[\]{}\"'<\s]*")
_ALL_WORDS: Final = re.compile(r"[^,;()\[\]{}\"'<\n]*")
# After a constant: a member, without a comma between them.
_MEMBER: Final = re.compile(r"\s{1,64}[\w.\-]{1,64}\s{0,64}[:=]")
_UNFINISHED_MEMBER: Final = re.compile(r"\s{0,64}[\w.\-]{0,64}\s{0,64}")
_KEY: Final = re.compile(r"([^,:=()\[\]{}\"'<\n]{1,64})[\"']?\s{0,64}[:=]")
_UNFINISHED_KEY: Final = re.compile(r"[^,:=()\[\]{}\"'<\n]{1,64}[\"']?\s{0,64}")
# Before a mark that begins a string, and does not end one.
_BEFORE_OPENING: Final = re.compile(r"[:=,\[{]\s*\Z")
_COMMENT: Final = re.compile(r"\s{1,64}#")
# How many characters of one value are looked at for the end of strings without their first mark.
_MAX_LOOKED_AT: Final = 8192
_KEY_WITHOUT_QUOTE: Final = re.compile(r"([\w.\- ]{1,64}?)\s*:")


@dataclass(frozen=True, slots=True)
class Notation:
    """How a family writes values. `quotes`: the marks around a string, longer marks first, and the
    escapes between these marks. `arrays`: the opening brackets of arrays. `has_names`: keys have no
    quotes. `is_python`: there are sets, calls of `dict`, and comments."""

    quotes: Mapping[str, Escapes]
    arrays: str = "["
    has_names: bool = False
    is_python: bool = False

    @property
    def mark(self) -> str:
        """The quote that no text has; "" without one."""
        return next((quote for quote in self.quotes if self.quotes[quote] is Escapes.NONE), "")

    @property
    def nothing(self) -> str:
        """The JSON text of a value that is missing. A string may have lost its marks."""
        return '""' if self.mark else "null"


JSON: Final = Notation({'"': Escapes.JSON, "'": Escapes.PYTHON}, arrays="[(")
PYTHON: Final = Notation(
    dict.fromkeys(('"""', "'''", '"', "'"), Escapes.PYTHON), arrays="[(", is_python=True
)


def gemma_notation(mark: str) -> Notation:
    """Return the notation of Gemma 4, with this mark around strings."""
    quotes = {mark: Escapes.NONE, '"': Escapes.JSON, "'": Escapes.PYTHON}
    return Notation(quotes, has_names=True)


@dataclass(frozen=True, slots=True)
class Border:
    """The surroundings of a value. `tags` end the call or begin another call. `closing`: the
    closing brackets that the call still needs, the innermost last; `around_call`: the closing
    brackets after the call. `is_named`: the value of a named argument. `has_bare_strings`: a word
    that is no constant is a string without quotes."""

    tags: tuple[str, ...] = ()
    closing: str = ""
    around_call: str = ""
    is_named: bool = False
    has_bare_strings: bool = True


@dataclass(slots=True)
class ValueText:
    _lexer: Lexer
    _notation: Notation
    _write: Callable[[str], None]
    _border: Border = Border()
    # The closing brackets that are needed, the innermost last. No recursion: the depth is up to the
    # model.
    _open: list[str] = field(default_factory=list)
    _num_open: Counter[str] = field(default_factory=Counter)  # the same, by kind
    _ends: list[str] = field(default_factory=list)  # the same in JSON: a set becomes an array
    # A comma and its space, held back because there may be no further item.
    _comma: list[str] = field(default_factory=list)
    _is_in_string: bool = False
    _num_looked_at: int = 0
    _needs_value: bool = False  # a key was read

    def read(self) -> Reading[bool]:
        """Read the value, and pass on its growing JSON text. Returns whether the value had all
        closing brackets; missing brackets are written where the call ends. Raises `UnexpectedText`
        for a text that is no value, and `EndOfText` for a cut value."""
        self._needs_value = self._border.is_named
        try:
            while (yield from self._read_item()):
                pass
        except EndOfText as end:
            if not end.is_closed or self._is_in_string:
                raise
            self._write_missing()
        is_whole = not self._open
        self._comma.clear()
        while self._open:
            self._close_last()
        return is_whole

    def _read_item(self) -> Reading[bool]:
        """Read an opening bracket or a value, and the text up to the next item. Returns whether
        there is a next item."""
        bracket = yield from self._peek()
        if (yield from self._is_at_tag(is_text=bool(self._notation.mark))):
            self._write_missing()
            return False
        self._write_comma()
        is_opening = bracket == "{" or bracket in self._notation.arrays
        if self._needs_value and bracket in ",;}])":
            self._write_missing()
        elif is_opening:
            is_object = bracket == "{" and not (yield from self._is_set())
            self._lexer.at += 1
            self._begin(_CLOSING[bracket], is_object=is_object)
        elif (yield from self._is_call_of_dict()):
            is_opening = True
            self._begin(")", is_object=True)
        else:
            yield from self._read_scalar()
            self._needs_value = False
        if not (yield from self._read_to_item(is_first=is_opening)):
            return False
        return self._ends[-1] != "}" or (yield from self._read_key())

    def _begin(self, closing: str, *, is_object: bool) -> None:
        self._needs_value = False
        self._open.append(closing)
        self._num_open[closing] += 1
        self._ends.append("}" if is_object else "]")
        self._write("{" if is_object else "[")

    def _is_set(self) -> Reading[bool]:
        """Whether the next bracket begins a set: after its first item comes no colon."""
        lexer = self._lexer
        if not self._notation.is_python:
            return False
        try:
            size = yield from lexer.size_of_run(_SPACE, 1)
            mark = lexer.text[lexer.at + size]
            if mark in ("'", '"'):
                size = 1 + (yield from _find_quote(lexer, mark, size + 1))
            elif mark != "(":
                start, size = size, (yield from lexer.size_of_run(_WORD, size))
                word = lexer.text[lexer.at + start : lexer.at + size]
                if word not in _WORDS and _number(word) is None:
                    return False
            size = yield from lexer.size_of_run(_SPACE, size)
        except EndOfText:
            return False
        return lexer.text[lexer.at + size] in ("(", ",", "}")

    def _is_call_of_dict(self) -> Reading[bool]:
        try:
            return self._notation.is_python and bool((yield from self._lexer.take("dict(")))
        except EndOfText:
            return False

    def _read_to_item(self, *, is_first: bool) -> Reading[bool]:
        """Read on to the next item in the open brackets, after a bracket (`is_first`) or a
        value. Returns False at the end of the value."""
        may_begin = is_first
        while self._open:
            mark = yield from self._peek()
            if (yield from self._is_at_tag()):
                return False
            if mark in ",;":
                self._lexer.at += 1
                self._comma = [] if is_first else [","]
                may_begin = True
            elif mark not in "}])":
                if may_begin:
                    return True
                if mark not in "\"'[{<-" and not mark.isalnum():
                    raise UnexpectedText
                self._comma = [", "]  # it was missing
                return True
            elif self._close(mark):
                may_begin = is_first = False
            else:
                return False
        return False

    def _close(self, mark: str) -> bool:
        """Read a closing bracket, and close the brackets inside it. A bracket that is not open is
        dropped. Returns False for a bracket of the call, which stays unread."""
        if not self._num_open[mark]:
            self._lexer.at += mark not in self._border.closing
            return mark not in self._border.closing
        self._comma.clear()
        self._lexer.at += 1
        while self._close_last() != mark:
            pass
        return True

    def _close_last(self) -> str:
        mark = self._open.pop()
        self._num_open[mark] -= 1
        self._write(self._ends.pop())
        return mark

    def _read_key(self) -> Reading[bool]:
        """Read a key and the sign after it. Returns False where another call begins instead."""
        if self._lexer.text[self._lexer.at] in "{[":
            return False
        quote = yield from read_quote(self._lexer, self._notation)
        try:
            key = yield from read_key(self._lexer, self._notation, quote)
        except UnexpectedText:
            self._write_comma()
            self._write(quote)
            raise
        self._write_comma()
        self._write(key)
        self._needs_value = True
        return True

    def _read_scalar(self) -> Reading[None]:
        lexer, notation = self._lexer, self._notation
        quote = yield from read_quote(lexer, notation)
        if quote:
            escapes = notation.quotes[quote]
            self._is_in_string = True
            yield from StringText(lexer, quote, escapes, self._around(quote), self._write).read()
            self._is_in_string = False
            return
        run = yield from self._read_run()
        word = run.rstrip()
        value = _WORDS.get(word) or _number(word)
        if notation.mark and (value is None or lexer.text.startswith("<", lexer.at)):
            lexer.at -= len(run)
            text = yield from self._read_up_to_mark()
            lexer.at += len(run) if text is None else 0
            value, run = (value, run) if text is None else (text, word)
        if value is None and word and self._border.has_bare_strings:
            value = quoted((yield from self._read_bare_string(run)))
        if value is None:
            lexer.at -= len(run)
            raise UnexpectedText
        self._write(value)
        if self._open and len(run) > len(word) and lexer.text[lexer.at - 1].isspace():
            self._write(_NO_JSON_SPACE.sub("", run[len(word) :]))

    def _around(self, quote: str = "") -> StringContext:
        context = Context.MEMBER
        if self._open and self._ends[-1] != "}":
            context = Context.ITEM
        elif not self._open and self._border.is_named:
            context = Context.NAMED
        border = self._border
        is_call = context is Context.MEMBER and self._open[-1:] == [")"]
        return StringContext(
            context,
            border.closing + "".join(self._open),
            border.tags,
            has_names=self._notation.has_names or context is Context.NAMED or is_call,
            around_call=border.around_call,
            has_mark=quote != "" and quote == self._notation.mark,
            has_comments=self._notation.is_python,
        )

    def _read_run(self) -> Reading[str]:
        """Read text without quotes, and the white space after it; only the constant, where no comma
        comes before the next member."""
        lexer = self._lexer
        try:
            size = yield from lexer.size_of_run(_WORD)
            word = lexer.text[lexer.at : lexer.at + size]
            is_constant = word in _WORDS or _number(word) is not None
            if not (is_constant and (yield from self._ends_after(size))):
                size = yield from lexer.size_of_run(_ALL_WORDS, size)
        except EndOfText as end:
            run = lexer.take_all()
            if end.is_closed:
                return run
            self._write(run)
            raise
        lexer.at += size
        return lexer.text[lexer.at - size : lexer.at]

    def _ends_after(self, size: int) -> Reading[bool]:
        """Whether a member or a comment follows a constant, without a comma between them."""
        lexer = self._lexer
        while _UNFINISHED_MEMBER.fullmatch(lexer.text, lexer.at + size):
            yield
        if self._notation.is_python and _COMMENT.match(lexer.text, lexer.at + size):
            return True
        return _MEMBER.match(lexer.text, lexer.at + size) is not None

    def _read_up_to_mark(self) -> Reading[str | None]:
        """Read a string without a first mark, up to and with the last mark. Returns its JSON text.
        None: the next mark does not end the string."""
        lexer, mark, most = self._lexer, self._notation.mark, _MAX_LOOKED_AT - self._num_looked_at
        is_end: bool | None = None
        try:
            found = yield from lexer.find(literals(mark, *self._border.tags), most)
            self._num_looked_at += found[1] if found else most
            if found is None or not lexer.text.startswith(mark, lexer.at + found[0]):
                return None
            if _BEFORE_OPENING.search(lexer.text, lexer.at, lexer.at + found[0]):
                return None
            while (is_end := self._around(mark).ends_at(lexer.text, lexer.at + found[1])) is None:
                yield
        except EndOfText:
            found = literals(mark).find(lexer.text[lexer.at :])
        if found is None or is_end is False:
            return None
        text = lexer.text[lexer.at : lexer.at + found[0]]
        lexer.at += found[1]
        return quoted(text)

    def _read_bare_string(self, run: str) -> Reading[str]:
        """Read the rest of a string whose first quote is missing. The last quote may be there."""
        lexer, around = self._lexer, self._around()
        parts = [run]
        while lexer.text[lexer.at : lexer.at + 1] in ("'", '"'):
            while (is_end := around.ends_at(lexer.text, lexer.at + 1)) is None:
                yield
            lexer.at += 1
            if is_end:
                break
            parts.append(lexer.text[lexer.at - 1])
            parts.append((yield from lexer.take_run(_ALL_WORDS)))
        else:
            parts[-1] = parts[-1].rstrip()
        return "".join(parts)

    def _is_at_tag(self, *, is_text: bool = False) -> Reading[bool]:
        """Whether a tag or its beginning comes next, unless a beginning may be text (`is_text`).
        Not inside a string."""
        lexer, tags = self._lexer, self._border.tags
        while tags and lexer.text[lexer.at] == "<":
            quotes = [quote for quote in self._notation.quotes if rest_begins(lexer, quote)]
            if not quotes and is_text:
                break
            if not quotes:
                return True
            if lexer.text.startswith(tuple(quotes), lexer.at):
                return False
            yield
        if tags and lexer.text[lexer.at] == "`":
            return True
        return bool(tags) and bool((yield from lexer.peek_text(*tags)))

    def _peek(self) -> Reading[str]:
        """Pass on white space, and drop comments. Return the character after them."""
        lexer = self._lexer
        while True:
            match = _SPACE.match(lexer.text, lexer.at)
            assert match is not None
            lexer.at = match.end()
            if match[0] and self._open:
                space = _NO_JSON_SPACE.sub("", match[0])
                if self._comma:
                    self._comma.append(space)
                else:
                    self._write(space)
            if lexer.at == len(lexer.text):
                yield
            elif self._notation.is_python and lexer.text[lexer.at] == "#":
                yield from skip_comment(lexer, self._border.tags)
            else:
                return lexer.text[lexer.at]

    def _write_missing(self) -> None:
        if self._needs_value:
            self._write(self._notation.nothing)
        self._needs_value = False

    def _write_comma(self) -> None:
        if self._comma:
            self._write("".join(self._comma))
            self._comma = []


def value_json(text: str, *, is_certain: bool) -> str | None:
    """Return the JSON text of a value that is written as `text`, in JSON or Python; None for other
    text. If the text is surely a value, brackets and quotes may be missing."""
    parts: list[str] = []
    has_read_all = False

    def read(lexer: Lexer) -> Reading[None]:
        nonlocal has_read_all
        yield
        border = Border(has_bare_strings=is_certain)
        try:
            is_whole = yield from ValueText(lexer, JSON, parts.append, border).read()
        except UnexpectedText:
            return
        rest = lexer.take_all().strip("}]) \n" if is_certain else " \n")
        has_read_all = not rest and (is_whole or is_certain)

    parser = Parser(read)
    parser.feed(text)
    parser.finish(is_closed=True)
    return "".join(parts) if has_read_all else None


def rest_begins(lexer: Lexer, text: str) -> bool:
    """Whether the next text begins with `text`, or may begin so."""
    rest = lexer.text[lexer.at : lexer.at + len(text)]
    return text.startswith(rest)


def skip_comment(lexer: Lexer, tags: Sequence[str]) -> Reading[None]:
    """Skip a comment of Python, up to the end of its line or a tag."""
    end = literals("\n", *tags)
    while (found := end.find(text := lexer.text[lexer.at :])) is None:
        lexer.at = len(lexer.text) - end.num_held(text)
        yield
    lexer.at += found[0]


def read_quote(lexer: Lexer, notation: Notation) -> Reading[str]:
    """Read the mark that begins a string; "" for other text. A mark that may begin a longer mark
    waits."""
    while True:
        quote = next((each for each in notation.quotes if rest_begins(lexer, each)), "")
        if lexer.text.startswith(quote, lexer.at):
            lexer.at += len(quote)
            return quote
        yield


def read_key(lexer: Lexer, notation: Notation, quote: str) -> Reading[str]:
    """Read the key of a member, after any quote, and the colon. Returns the JSON text of both.
    Raises `UnexpectedText` for a text that is no key."""
    if quote:
        return (yield from _read_quoted_key(lexer, quote, notation.quotes[quote]))
    while _UNFINISHED_KEY.fullmatch(lexer.text, lexer.at):
        yield
    key = _KEY.match(lexer.text, lexer.at)
    if key is None:
        raise UnexpectedText
    lexer.at = key.end()
    return f"{quoted(key[1].rstrip())}:"


def _read_quoted_key(lexer: Lexer, quote: str, escapes: Escapes) -> Reading[str]:
    """Read a key after the first quote. The last quote may be missing."""
    try:
        size = yield from _find_quote(lexer, quote)
        end = yield from lexer.size_of_run(_SPACE, size + len(quote))
    except EndOfText as end_of_text:
        if not end_of_text.is_closed:
            raise
        return _key_without_quote(lexer, len(lexer.text))
    text = lexer.text[lexer.at : lexer.at + end + 1]
    if not text.endswith((":", "=")):
        return _key_without_quote(lexer, lexer.at + size)
    lexer.at += end + 1
    space = _NO_JSON_SPACE.sub("", text[size + len(quote) : end])
    return f'"{respelled(text[:size], escapes)}"{space}:'


def _find_quote(lexer: Lexer, quote: str, size: int = 0) -> Reading[int]:
    """Return how many characters stand before the next quote without a backslash; `size` characters
    are known."""
    marks = _quote_or_escape(quote)
    while (found := marks.search(lexer.text, lexer.at + size)) is None or found[0] != quote:
        if found is not None:
            size = found.end() - lexer.at
        else:
            # The last characters may be the beginning of a quote, or of an escape.
            size = max(size, len(lexer.text) - lexer.at - len(quote))
            yield
    return found.start() - lexer.at


@cache
def _quote_or_escape(quote: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(quote)}|\\[\s\S]")


def _key_without_quote(lexer: Lexer, end: int) -> str:
    key = _KEY_WITHOUT_QUOTE.match(lexer.text, lexer.at, end)
    if key is None:
        raise UnexpectedText
    lexer.at = key.end()
    return f"{quoted(key[1])}:"


def _number(word: str) -> str | None:
    """JSON's numbers stay unchanged. Other numbers of Python (`1_000`, `0x1f`, `.5`) are
    translated."""
    if _JSON_NUMBER.fullmatch(word):
        return word
    if not _PYTHON_NUMBER.fullmatch(word):
        return None
    try:
        is_float = "." in word or ("e" in word.lower() and "x" not in word.lower())
        return json.dumps(float(word) if is_float else int(word, 0), allow_nan=False)
    except ValueError:
        return None
