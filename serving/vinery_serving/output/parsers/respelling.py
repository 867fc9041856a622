"""The JSON text of a value in a call that is written in another notation, or damaged. Models write
JSON, Python, Gemma's notation, or mixtures, and leave out quotes, commas and brackets. The text is
whole here: a quote ends a string if the text after the quote fits. Nothing is evaluated."""

import ast
import json
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from vinery_serving.output.lexer import match_end

CONSTANTS: Final = {"true": True, "false": False, "null": None, "none": None}
_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}
_OPENING: Final = {closing: opening for opening, closing in _CLOSING.items()}
_MAX_STRIPPED: Final = 16  # brackets at the end of a string without a last quote
MAX_TAIL: Final = 64  # characters before a quote that may be the end of a string without one
_MAX_MARK_AHEAD: Final = 256

_SPACE: Final = re.compile(r"\s*")
_NO_JSON_SPACE: Final = re.compile(r"[^ \t\r\n]")
_JSON_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
# Possible constants. Python converts longer numbers in more than linear time.
_PYTHON_CONSTANT: Final = re.compile(r"[+-]?[\w.]{1,64}")
JSON_ESCAPE: Final = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_VALID_STRING: Final = re.compile(rf'(?:[^"\\\x00-\x1f]+|{JSON_ESCAPE})*+')
# What a JSON string cannot hold, and the escapes of Python's strings.
_MENDED: Final = re.compile(rf"{JSON_ESCAPE}|\\x[0-9a-fA-F]{{2}}|\\'|[\\\"\x00-\x1f]")
# A path of Windows whose backslashes are no escapes.
_PATH: Final = re.compile(r"[A-Za-z]:\\(?![\"\\/bfnrtu])")

# Text without quotes: a constant, or the words of a string that has lost its quotes.
_WORD: Final = re.compile(r"[^,;()\[\]{}\"'<\n]*")
_KEY: Final = re.compile(
    r"""(?P<quote>["'])(?P<quoted>(?:(?!(?P=quote))[^\\\n]|\\.){0,256})(?P=quote)(?P<space>\s*)[:=]"""
    r"""|["']?(?P<bare>[^,:=()\[\]{}"'<\n]{1,64}?)["']?\s*[:=]"""
)
_MARKED_KEY: Final = re.compile(r'<(?:\|"\||escape)>([^<]*)<(?:\|"\||escape)>\s*:')
# The possible end of a string, and the beginning of the next text.
TAIL: Final = re.compile(r"\s*(?:[}\]),;][\s}\]),;\[{]*)?\Z")
_TAIL_WITH_NAME: Final = re.compile(r"[\s}\])]*,\s*[\w.\-]{1,64}\s*[:=]\s*\Z")
_SEPARATED: Final = re.compile(r"[\s}\]),;\[{]*")
# After the quote at the end of a member's value, and of an item.
_QUOTED_KEY: Final = (
    r"""(?:"(?:[^"\\\n]|\\.){0,128}"|'(?:[^'\\\n]|\\.){0,128}'|[\w.\-]{1,64})\s*[:=]"""
)
_CLOSED: Final = r"\s*[}\])][\s}\])]*(?:[,;<{]|\Z|[\"'`]+\s*\Z)"
AFTER_MEMBER: Final = re.compile(
    rf"{_CLOSED}|\s*[,;]\s*(?:[}}\])]|{_QUOTED_KEY}|\Z)|\s*\Z|\s+{_QUOTED_KEY}"
)
AFTER_ITEM: Final = re.compile(
    rf"{_CLOSED}|\s*[,;]\s*(?:[\"'\[{{(\d<\-}}\])]|\Z"
    r"|(?:true|True|false|False|null|None)\s*[,\])}])|\s*\Z"
)

_Expected = Literal["value", "key", "after", "end", "broken"]


@dataclass(frozen=True, slots=True)
class Notation:
    """How a family writes values. `quotes`: the marks around a string, longer marks first. `mark`:
    a quote that no text has, and in whose strings no escapes are. `arrays`: the opening brackets of
    arrays. `has_names`: keys have no quotes."""

    quotes: tuple[str, ...] = ('"', "'")
    mark: str = ""
    arrays: str = "[("
    has_names: bool = False


JSON: Final = Notation()
PYTHON: Final = Notation(('"""', "'''", '"', "'"), has_names=True)


def gemma_notation(mark: str) -> Notation:
    return Notation((mark, '"', "'"), mark, "[", has_names=True)


def refuse(constant: str) -> None:
    """NaN and infinity are no JSON."""
    raise ValueError(constant)


class Respelled(NamedTuple):
    """`end`: the index after the value. `is_whole`: the value had brackets, and closed all."""

    text: str
    end: int
    is_whole: bool


def respelled(
    text: str,
    notation: Notation = JSON,
    *,
    opening: str = "",
    around: str = "",
    has_bare_strings: bool = True,
) -> Respelled | None:
    """Return the JSON text of the value that `text` begins with; None for other text. Valid JSON
    stays unchanged. `opening`: a bracket before the text, which begins an object. `around`: the
    closing brackets that may follow the value. `has_bare_strings`: a word that is no constant is a
    string without quotes."""
    if not opening and (end := end_of_json(text)):
        return Respelled(text[:end], end, is_whole=True)
    respelling = _Respelling(text, notation, around, has_bare_strings)
    return respelling.run(opening)


_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=refuse)


def end_of_json(text: str) -> int:
    """Return the end of the JSON object or array that the text begins with; 0 for other text."""
    try:
        return _DECODER.raw_decode(text)[1] if text[:1] in ("{", "[") else 0
    except (ValueError, RecursionError):
        return 0


@dataclass(slots=True)
class _Respelling:
    _text: str
    _notation: Notation
    _around: str
    _has_bare_strings: bool
    _at: int = 0
    _parts: list[str] = field(default_factory=list)
    # The closing brackets that are needed, the innermost last: as written, and in JSON.
    _open: list[tuple[str, str]] = field(default_factory=list)
    _num_open: Counter[str] = field(default_factory=Counter)  # by the written bracket
    _comma: str = ""  # held back with its space, because there may be no further item
    _needs_value: bool = False  # a key was read

    def run(self, opening: str) -> Respelled | None:
        expected: _Expected = "value"
        if opening:
            expected = self._begin(_CLOSING[opening], "}")
        while expected not in ("end", "broken"):
            self._copy_space()
            if expected == "value":
                expected = self._read_value()
            elif expected == "key":
                expected = self._read_key()
            else:
                expected = self._read_after()
        if expected == "broken":
            return None
        is_whole = bool(self._num_open) and not self._open
        if self._needs_value:
            self._write_missing()
        self._parts += [closing for _, closing in reversed(self._open)]
        return Respelled("".join(self._parts), self._at, is_whole)

    @property
    def _mark(self) -> str:
        return self._text[self._at : self._at + 1]

    def _copy_space(self) -> None:
        start, self._at = self._at, match_end(_SPACE, self._text, self._at)
        space = _NO_JSON_SPACE.sub("", self._text[start : self._at])
        if self._comma:
            self._comma += space
        elif self._open and space:
            self._parts.append(space)

    def _read_value(self) -> _Expected:
        mark = self._mark
        if mark in ",;}])":  # also at the end of the text
            if self._needs_value:
                self._write_missing()
            return "after" if self._open else "broken"
        self._write_comma()
        self._needs_value = False
        if mark == "{" or mark in self._notation.arrays:
            self._at += 1
            return self._begin(_CLOSING[mark], "}" if mark == "{" else "]")
        if not self._read_scalar():
            return "broken"
        return "after" if self._open else "end"

    def _begin(self, closing: str, json_closing: str) -> _Expected:
        self._open.append((closing, json_closing))
        self._num_open[closing] += 1
        self._parts.append(_OPENING[json_closing])
        return self._next_item()

    def _next_item(self) -> _Expected:
        return "key" if self._open[-1][1] == "}" else "value"

    def _read_key(self) -> _Expected:
        mark = self._mark
        if mark in ",;}])":
            return "after"
        if mark in "{[":
            return "end"  # another call begins
        key = _MARKED_KEY.match(self._text, self._at)
        found = key or _KEY.match(self._text, self._at)
        if found is None:
            return "broken"
        self._write_comma()
        if key is not None:
            name, space = inside(key[1]), ""
        elif found["quote"]:
            name, space = _mended(found["quoted"]), _NO_JSON_SPACE.sub("", found["space"])
        else:
            name, space = inside(found["bare"].strip()), ""
        self._parts.append(f'"{name}"{space}:')
        self._at = found.end()
        self._needs_value = True
        return "value"

    def _read_after(self) -> _Expected:
        mark = self._mark
        if not mark or not self._open:
            return "end"
        if mark in ",;":
            self._at += 1
            self._comma = ","
            return self._next_item()
        if mark in "}])":
            return self._close(mark)
        if mark not in "\"'[{<-" and not mark.isalnum():
            return "broken"
        self._comma = ", "  # it was missing
        return self._next_item()

    def _close(self, mark: str) -> _Expected:
        """Read a closing bracket, and close the brackets inside it. A bracket that is not open is
        dropped, unless it may follow the value."""
        if not self._num_open[mark]:
            if mark in self._around:
                return "end"
            self._at += 1
            return "after"
        self._at += 1
        self._comma = ""
        closing = ""
        while closing != mark:
            closing, json_closing = self._open.pop()
            self._num_open[closing] -= 1
            self._parts.append(json_closing)
        return "after" if self._open else "end"

    def _read_scalar(self) -> bool:
        """Returns False for text that is no value."""
        text, notation = self._text, self._notation
        quote = next((each for each in notation.quotes if text.startswith(each, self._at)), "")
        if quote:
            start = self._at + len(quote)
            end, self._at = self._string_end(start, quote)
            raw = text[start:end]
            self._parts.append(f'"{inside(raw) if quote == notation.mark else _mended(raw)}"')
            return True
        end = match_end(_WORD, text, self._at)
        word = text[self._at : end].rstrip()
        constant = _constant(word)
        if notation.mark and (constant is None or text.startswith("<", end)):
            marked = text.find(notation.mark, self._at, self._at + _MAX_MARK_AHEAD)
            before = text[self._at : marked].rstrip()
            if marked >= 0 and before and before[-1] not in ":=,[{":
                self._parts.append(quoted(text[self._at : marked]))
                self._at = marked + len(notation.mark)
                return True
        if constant is None and not (word and self._has_bare_strings):
            return False
        has_quote = constant is None and text[end : end + 1] in ("'", '"') and self._fits(end + 1)
        self._parts.append(quoted(word) if constant is None else constant)
        self._at = end + 1 if has_quote else self._at + len(word)
        return True

    def _string_end(self, start: int, quote: str) -> tuple[int, int]:
        """Return the end of a string, and the index after its quote, which may be missing."""
        text = self._text
        if quote == self._notation.mark and (marked := text.find(quote, start)) >= 0:
            return marked, marked + len(quote)
        for found in quote_or_escape(quote).finditer(text, start):
            if found[0] != quote:
                continue
            if self._fits(found.end()):
                return found.start(), found.end()
            if (end := self._end_before(start, found.start())) is not None:
                return end, end
        body = text[start:].rstrip()
        for _ in range(_MAX_STRIPPED):
            mark = body[-1:]
            is_needed = bool(mark) and (self._num_open[mark] > 0 or mark in self._around)
            if not is_needed or body.count(mark) <= body.count(_OPENING[mark]):
                break
            body = body[:-1].rstrip()
        end = start + len(body)
        return end, end

    def _fits(self, at: int) -> bool:
        """Whether a string may end with a quote before this index."""
        is_item = bool(self._open) and self._open[-1][1] == "]"
        if (AFTER_ITEM if is_item else AFTER_MEMBER).match(self._text, at) is None:
            return False
        after = match_end(_SPACE, self._text, at)
        mark = self._text[after : after + 1]
        return mark not in "}])" or self._num_open[mark] > 0 or mark in self._around or not mark

    def _end_before(self, start: int, quote_at: int) -> int | None:
        """The end of a string whose quote is missing, where the quote begins a key or an item."""
        text, first = self._text, max(start, quote_at - MAX_TAIL)
        named = _TAIL_WITH_NAME.search(text, first, quote_at)
        if named is not None and self._notation.has_names:
            return named.start()
        tail = TAIL.search(text, first, quote_at)
        assert tail is not None
        is_object = not self._open or self._open[-1][1] == "}"
        if not tail[0].strip() or not is_object or not _SEPARATED.fullmatch(tail[0]):
            return None
        return tail.start() if _KEY.match(text, quote_at) else None

    def _write_missing(self) -> None:
        """A value is missing. A string of Gemma may have lost its marks."""
        self._parts.append('""' if self._notation.mark else "null")
        self._needs_value = False

    def _write_comma(self) -> None:
        self._parts.append(self._comma)
        self._comma = ""


@cache
def quote_or_escape(quote: str) -> re.Pattern[str]:
    """There are no escapes before marks like `<|"|>`."""
    escaped = re.escape(quote)
    return re.compile(escaped if len(quote) > len('"""') else rf"{escaped}|\\[\s\S]")


def inside(text: str) -> str:
    """Return `text` as it is written between the quotes of a JSON string. Half of a surrogate pair
    could not be sent on as UTF-8."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)[1:-1]


def quoted(text: str) -> str:
    return f'"{inside(text)}"'


def _mended(raw: str) -> str:
    """Return the text between the quotes of a JSON string from text that may lack escapes, or have
    some of Python's."""
    if _VALID_STRING.fullmatch(raw):
        return raw
    if _PATH.match(raw):
        return inside(raw.replace("\\\\", "\\"))
    return _MENDED.sub(lambda found: _mended_part(found[0]), raw)


def _mended_part(part: str) -> str:
    if part.startswith("\\x"):
        return inside(chr(int(part[2:], 16)))
    if part == "\\'":
        return "'"
    return part if len(part) > 1 else inside(part)


def _constant(word: str) -> str | None:
    """JSON's numbers stay unchanged. Other numbers of Python (`1_000`, `0x1f`, `.5`) are
    translated."""
    if _JSON_NUMBER.fullmatch(word):
        return word
    return python_json(word) if _PYTHON_CONSTANT.fullmatch(word) else None


def python_json(source: str) -> str | None:
    """Return the JSON text of a literal of Python, also with the constants of JSON; None for other
    text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know, and keeps
            tree = ast.parse(source, mode="eval")
        text = json.dumps(_python_value(tree.body), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    # Surrogate pairs become characters; a half could not be sent on as UTF-8.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _python_value(node: ast.expr) -> Any:
    """Raises ValueError for anything but a literal or a call of `dict`."""
    match node:
        case ast.Constant(str() | bool() | int() | float() | None as value):
            return value
        case ast.Name(name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.List(items) | ast.Tuple(items) | ast.Set(items):
            return [_python_value(each) for each in items]
        case ast.Dict(keys, values):
            members = zip(keys, values, strict=True)
            return {_python_key(key): _python_value(value) for key, value in members}
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
            return -number
        case ast.Call(ast.Name("dict"), [], members):
            found: dict[str, Any] = {}
            for each in members:
                value = _python_value(each.value)
                found |= {each.arg: value} if each.arg is not None else dict(value)
            return found
        case _:
            raise ValueError


def _python_key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(str() | int() | float() as key):
            return str(key)
        case _:
            raise ValueError
