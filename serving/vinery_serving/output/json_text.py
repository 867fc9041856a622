"""The text of a growing JSON string, without its escapes."""

import json
import re
from collections.abc import Callable

from vinery_serving.output.lexer import EndOfText, Lexer, Reading, match_end

_STRING = re.compile(r'(?:[^"\\]|\\[\s\S])*')

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
