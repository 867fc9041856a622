"""A value in another notation than JSON (Python's, Gemma's), as JSON text while it grows.

Nothing is evaluated: the value is respelled part by part, so that a long string reaches the
client while the model still writes it.
"""

import ast
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vinery_serving.output.lexer import Lexer, Reading, UnexpectedText, literals

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
_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}
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


def read_literal(lexer: Lexer, notation: Notation, write: Callable[[str], None]) -> Reading[None]:
    """Read one value, and pass on its JSON text while it grows. Raises `UnexpectedText` for what
    is no value."""
    # What closes the open brackets, the innermost last. Not a recursion, because the depth is up
    # to the model.
    closing: list[str] = []
    while True:
        bracket = yield from lexer.peek()
        is_first = bracket == "{" or bracket in notation.arrays
        if is_first:
            lexer.at += 1
            closing.append(_CLOSING[bracket])
            write("{" if bracket == "{" else "[")
        else:
            yield from _read_scalar(lexer, notation, write)
        if not (yield from _to_next_item(lexer, closing, write, is_first=is_first)):
            return
        if closing[-1] == "}":
            yield from _read_scalar(lexer, notation, write, is_key=True)
            if (yield from lexer.peek()) != ":":
                raise UnexpectedText
            lexer.at += 1
            write(": ")


def _to_next_item(
    lexer: Lexer, closing: list[str], write: Callable[[str], None], *, is_first: bool
) -> Reading[bool]:
    """Read on to the next item in the open brackets, after a bracket (`is_first`) or a value.
    Returns False when all brackets are closed: the value is complete."""
    may_begin = is_first
    while closing:
        mark = yield from lexer.peek()
        if mark == closing[-1]:
            write("}" if closing.pop() == "}" else "]")
            may_begin = is_first = False
        elif may_begin:
            if not is_first:
                write(", ")
            return True
        elif mark == ",":
            may_begin = True
        else:
            raise UnexpectedText
        lexer.at += 1
    return False


def _read_scalar(
    lexer: Lexer, notation: Notation, write: Callable[[str], None], *, is_key: bool = False
) -> Reading[None]:
    """Read a string or a word."""
    quote = yield from _read_quote(lexer, notation)
    if quote:
        yield from _read_string(lexer, quote, write, has_escapes=quote in notation.escaping)
        return
    run = yield from lexer.take_run(notation.key_word if is_key else notation.word)
    word = run.strip()
    value = None if is_key and notation.has_bare_strings else _WORDS.get(word) or _number(word)
    if word and value is None and notation.has_bare_strings:
        value = _quoted(word)
    if not word or value is None:
        lexer.at -= len(run)
        raise UnexpectedText
    write(f'"{value}"' if is_key and not value.startswith('"') else value)


def _read_quote(lexer: Lexer, notation: Notation) -> Reading[str]:
    """Read the mark that begins a string; "" for other text. A mark that may begin a longer one
    waits."""
    while True:
        rest = lexer.text[lexer.at :]
        quote = next((each for each in notation.quotes if _begin_alike(each, rest)), "")
        if rest.startswith(quote):
            lexer.at += len(quote)
            return quote
        yield


def _begin_alike(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _read_string(
    lexer: Lexer, quote: str, write: Callable[[str], None], *, has_escapes: bool
) -> Reading[None]:
    def write_inside(text: str) -> None:
        write(_quoted(text)[1:-1])

    write('"')
    mark = literals(quote, "\\") if has_escapes else literals(quote)
    while (yield from lexer.take_until(mark, write_inside)) != quote:
        lexer.at -= 1  # the backslash
        while True:
            escape = _ESCAPE.match(lexer.text, lexer.at)
            if escape is not None and not _UNFINISHED.match(lexer.text, lexer.at):
                break
            yield
        write_inside(_meaning(escape[0]))
        lexer.at = escape.end()
    write('"')


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
