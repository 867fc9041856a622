"""JSON read as text while it grows: where a value ends, and what a quoted string says.

Nothing is parsed into objects: clients are owed the exact text that the model wrote.
"""

from __future__ import annotations

import json
import re

_IN_STRING = re.compile(r'["\\]')
_BETWEEN = re.compile(r'["{}\[\]<]')
_SCALAR_END = re.compile(r"[,}\]\s<]")

_HEX = r"[0-9a-fA-F]{4}"
_HIGH, _LOW = r"[dD][89abAB][0-9a-fA-F]{2}", r"[dD][c-fC-F][0-9a-fA-F]{2}"
# Too few digits for a code, and more text than could still bring them.
_NO_CODE = r"\\u(?=[0-9a-fA-F]{0,3}[^0-9a-fA-F])"

# Runs of characters and escapes that are complete. A high surrogate waits for its other
# half, unless what follows shows that none will come.
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
# One escape, or what only looks like one.
_ESCAPE = re.compile(rf"\\u{_HIGH}\\u{_LOW}|\\u{_HEX}|\\[\s\S]")


class JsonValue:
    """Finds the end of one value. Feed it from the value's first character on."""

    def __init__(self) -> None:
        self._first = ""
        self._depth = 0
        self._is_quoted = False
        self._is_escaped = False
        # A `<` outside a string is no JSON: the model went on to a tag too early.
        self.is_broken = False

    @property
    def is_string(self) -> bool:
        """Whether the value is a quoted string."""
        return self._first == '"'

    @property
    def is_container(self) -> bool:
        """Whether the value is an object or an array."""
        return self._first in ("{", "[")

    def scan(self, text: str, at: int) -> int | None:
        """The index in `text` after the value's last character; None: it goes on."""
        if not self._first:
            self._first = text[at]
        if not self.is_string and not self.is_container:
            return self._scan_scalar(text, at)
        while at < len(text):
            at = self._skip_quoted(text, at) if self._is_quoted else self._next_mark(text, at)
            if self.is_broken or self._is_complete:
                return at
        return None

    @property
    def _is_complete(self) -> bool:
        return self._depth == 0 and not self._is_quoted and not self._is_escaped

    def _scan_scalar(self, text: str, at: int) -> int | None:
        end = _SCALAR_END.search(text, at)
        return end.start() if end else None

    def _next_mark(self, text: str, at: int) -> int:
        mark = _BETWEEN.search(text, at)
        if mark is None:
            return len(text)
        match mark[0]:
            case '"':
                self._is_quoted = True
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
            case _:
                self.is_broken = True
                return mark.start()
        return mark.end()

    def _skip_quoted(self, text: str, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return at + 1
        mark = _IN_STRING.search(text, at)
        if mark is None:
            return len(text)
        if mark[0] == '"':
            self._is_quoted = False
        else:
            self._is_escaped = True
        return mark.end()


class JsonUnquote:
    """What is written inside a quoted string, as it grows."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, raw: str) -> str:
        """The meaning of more text between the quotes; an unfinished escape waits."""
        raw = self._held + raw
        complete = _COMPLETE.match(raw)
        num_complete = complete.end() if complete else 0
        self._held = raw[num_complete:]
        return unquote(raw[:num_complete])

    def finish(self) -> str:
        """The rest, which is an escape that no more text completes."""
        held, self._held = self._held, ""
        return unquote(held)


def unquote(raw: str) -> str:
    """The text that a JSON string's inside stands for. Escapes that JSON has not stay as
    they are: so the whole means what its parts mean."""
    if "\\" not in raw:
        return raw
    text = _meaning(raw)
    if text is None:
        text = _ESCAPE.sub(lambda escape: _meaning(escape[0]) or escape[0], raw)
    # Half of a surrogate pair could not be sent on as UTF-8.
    return text.encode("utf-8", "replace").decode()


def _meaning(raw: str) -> str | None:
    """None: it is no JSON."""
    try:
        # Models write bare line breaks in strings; only the strict reading forbids them.
        text: str = json.loads(f'"{raw}"', strict=False)
    except ValueError:
        return None
    return text
