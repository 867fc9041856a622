"""Growing JSON read as text: where a value ends, what a string contains, and the members of an
object.

Clients get the exact text that the model wrote, so nothing is parsed into objects. A value is read
from the first character on.
"""

import json
import re
from collections.abc import Callable

from vinery_serving.output.lexer import EndOfText, Lexer, Reading, UnexpectedText, match_end

_SPACE_AND_COMMAS = re.compile(r"[\s,]*")
_IN_STRING = re.compile(r'["\\]')
_STRING = re.compile(r'(?:[^"\\]|\\[\s\S])*')
_BETWEEN = re.compile(r'["{}\[\]<]')
_SCALAR_END = re.compile(r"[,}\]\s<]")

_HEX = r"[0-9a-fA-F]{4}"
_HIGH, _LOW = r"[dD][89abAB][0-9a-fA-F]{2}", r"[dD][c-fC-F][0-9a-fA-F]{2}"
# Too few digits for a code, and other text after them.
_NO_CODE = r"\\u(?=[0-9a-fA-F]{0,3}[^0-9a-fA-F])"

# Runs of characters and escapes that are complete. A high surrogate waits for the low surrogate,
# unless other text follows.
_COMPLETE = re.compile(
    rf"""(?: [^\\]
           | \\[^u]
           | {_NO_CODE}
           | \\u(?!{_HIGH}){_HEX}
           | \\u{_HIGH}\\u{_LOW}
           | \\u{_HIGH}(?= [^\\] | \\[^u] | {_NO_CODE} | \\u(?!{_LOW}){_HEX} )
         )*""",
    re.VERBOSE | re.DOTALL,
)
# An escape, or text that looks like an escape.
_ESCAPE = re.compile(rf"\\u{_HIGH}\\u{_LOW}|\\u{_HEX}|\\[\s\S]")


def read_value(lexer: Lexer, write: Callable[[str], None]) -> Reading[bool]:
    """Read one value, and pass on the text while the value grows.

    Returns whether the value is complete. A `<` outside strings is a tag that the model wrote too
    early: the value ends before the tag.
    """
    if lexer.text[lexer.at] not in '"{[':
        return (yield from _read_scalar(lexer, write))
    depth, is_quoted, is_escaped = 0, False, False
    while True:
        text, end = lexer.text, lexer.at
        if is_escaped and end < len(text):
            is_escaped = False
            end += 1
        while mark := (_IN_STRING if is_quoted else _BETWEEN).search(text, end):
            end = mark.end()
            match mark[0]:
                case '"':
                    is_quoted = not is_quoted
                case "{" | "[":
                    depth += 1
                case "}" | "]":
                    depth -= 1
                case "\\" if end < len(text):
                    end += 1
                case "\\":
                    is_escaped = True
                case _:
                    write(_read_to(lexer, mark.start()))
                    return False
            if depth == 0 and not is_quoted:
                write(_read_to(lexer, end))
                return True
        write(lexer.take_all())
        yield


def _read_scalar(lexer: Lexer, write: Callable[[str], None]) -> Reading[bool]:
    while (end := _SCALAR_END.search(lexer.text, lexer.at)) is None:
        write(lexer.take_all())
        yield
    write(_read_to(lexer, end.start()))
    return True


def _read_to(lexer: Lexer, end: int) -> str:
    text, lexer.at = lexer.text[lexer.at : end], end
    return text


def read_string(lexer: Lexer, write: Callable[[str], None]) -> Reading[None]:
    """Read a string from the first quote on, and pass on its text without escapes."""
    lexer.at += 1
    try:
        while True:
            end = match_end(_STRING, lexer.text, lexer.at)
            if lexer.text.startswith('"', end):
                break
            complete = match_end(_COMPLETE, lexer.text, lexer.at)
            text, lexer.at = lexer.text[lexer.at : complete], complete
            write(unquote(text))
            yield
    except EndOfText:
        write(unquote(lexer.take_all()))  # an escape that no more text completes
        raise
    write(unquote(lexer.text[lexer.at : end]))
    lexer.at = end + 1


def read_unquoted(lexer: Lexer, write: Callable[[str], None]) -> Reading[None]:
    """Read a value, and pass on the contents of a string or the text of any other value."""
    if lexer.text[lexer.at] == '"':
        yield from read_string(lexer, write)
    else:
        yield from read_value(lexer, write)


def read_key(lexer: Lexer) -> Reading[str | None]:
    """Read up to the value of an object's next member. Returns the key, or None after reading
    the closing brace. Raises `UnexpectedText` for what is no JSON."""
    first = yield from lexer.peek(_SPACE_AND_COMMAS)
    if first == "}":
        lexer.at += 1
        return None
    if first != '"':
        raise UnexpectedText
    parts: list[str] = []
    yield from read_value(lexer, parts.append)
    if (yield from lexer.peek()) != ":":
        raise UnexpectedText
    lexer.at += 1
    yield from lexer.peek()
    return unquote("".join(parts)[1:-1])


def unquote(raw: str) -> str:
    """Return the text between the quotes of a JSON string without its escapes. Text that is no JSON
    escape stays unchanged, so the parts of a text mean the same as the whole."""
    if "\\" not in raw:
        return raw
    text = _meaning(raw)
    if text is None:
        text = _ESCAPE.sub(lambda escape: _meaning(escape[0]) or escape[0], raw)
    # Half of a surrogate pair could not be sent on as UTF-8.
    return text.encode("utf-8", "replace").decode()


def _meaning(raw: str) -> str | None:
    """None: `raw` is no JSON."""
    try:
        # Models write bare line breaks in strings; only the strict reading forbids them.
        text: str = json.loads(f'"{raw}"', strict=False)
    except ValueError:
        return None
    return text
