"""JSON read as text while it grows: where a value ends, what a string contains, and which
members an object has.

Nothing is parsed into objects: clients get the exact text that the model wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

_SPACE = re.compile(r"\s*")
_SPACE_AND_COMMAS = re.compile(r"[\s,]*")
_IN_STRING = re.compile(r'["\\]')
_BETWEEN = re.compile(r'["{}\[\]<]')
_SCALAR_END = re.compile(r"[,}\]\s<]")

_HEX = r"[0-9a-fA-F]{4}"
_HIGH, _LOW = r"[dD][89abAB][0-9a-fA-F]{2}", r"[dD][c-fC-F][0-9a-fA-F]{2}"
# Too few digits for a code, and other text after them.
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
    """Finds the end of one value. Scan it from the value's first character on."""

    def __init__(self) -> None:
        self._first = ""
        self._depth = 0
        self._is_quoted = False
        self._is_escaped = False
        # A `<` outside a string is no JSON: the model wrote a tag too early.
        self.is_broken = False

    @property
    def is_string(self) -> bool:
        return self._first == '"'

    @property
    def is_container(self) -> bool:
        """Whether the value is an object or an array."""
        return self._first in ("{", "[")

    def scan(self, text: str, at: int) -> int | None:
        """Return the index in `text` after the value's last character. None: it goes on."""
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


class _Unquote:
    """The contents of a quoted string, as it grows."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, raw: str) -> str:
        """Return the meaning of more text between the quotes; hold back an unfinished escape."""
        raw = self._held + raw
        complete = _COMPLETE.match(raw)
        num_complete = complete.end() if complete else 0
        self._held = raw[num_complete:]
        return unquote(raw[:num_complete])

    def finish(self) -> str:
        """Return the rest: an escape that no more text completes."""
        held, self._held = self._held, ""
        return unquote(held)


class UnquotedValue:
    """One value while it grows: the contents of a string, the text of any other value."""

    def __init__(self) -> None:
        self._value = JsonValue()
        self._unquote = _Unquote()
        self._has_quote = False
        self.is_complete = False

    @property
    def is_scalar(self) -> bool:
        """Whether the value is a number or a word."""
        return not self._value.is_string and not self._value.is_container

    def take(self, text: str, at: int) -> tuple[int, str]:
        """Return the index in `text` where the value stops, and what it adds."""
        end = self._value.scan(text, at)
        grown = text[at:end]
        self.is_complete = end is not None
        return at + len(grown), self._inside(grown) if self._value.is_string else grown

    def finish(self) -> str:
        """Return an unfinished escape, where the text is cut."""
        return self._unquote.finish()

    def _inside(self, grown: str) -> str:
        if not self._has_quote:
            self._has_quote = True
            grown = grown[1:]
        if not self.is_complete:
            return self._unquote.feed(grown)
        return self._unquote.feed(grown[:-1]) + self._unquote.finish()


class JsonWord:
    """A key, a name, or a value that is not passed on: kept until it is complete."""

    def __init__(self) -> None:
        self._value = JsonValue()
        self._raw = ""
        self.is_complete = False

    @property
    def is_string(self) -> bool:
        return self._value.is_string

    @property
    def text(self) -> str:
        """The contents of a string."""
        return unquote(self._raw[1:-1])

    def take(self, text: str, at: int) -> int:
        end = self._value.scan(text, at)
        self._raw += text[at:end]
        self.is_complete = end is not None
        return len(text) if end is None else end


class JsonObject:
    """Walks over the members of an object while it grows. Subclasses read the values.

    Each step takes some of the text from an index on, and returns the index where it stopped.
    """

    def __init__(self) -> None:
        self._step: Callable[[str, int], int] = self._at_start
        self._key = ""
        self._word = JsonWord()

    def _begin_value(self, text: str, at: int) -> int:
        """At the first character of the value of `_key`: choose the step that reads it."""
        raise NotImplementedError

    def _close(self, text: str, at: int) -> int:
        """After the closing brace."""
        raise NotImplementedError

    def _break(self, text: str, at: int) -> int:
        """At a character that JSON does not allow."""
        raise NotImplementedError

    def _at_start(self, text: str, at: int) -> int:
        return self._expect("{", text, at, self._at_key)

    def _at_key(self, text: str, at: int) -> int:
        at = _after(_SPACE_AND_COMMAS, text, at)
        if at == len(text):
            return at
        if text[at] == "}":
            return self._close(text, at + 1)
        if text[at] != '"':
            return self._break(text, at)
        self._word = JsonWord()
        self._step = self._in_key
        return at

    def _in_key(self, text: str, at: int) -> int:
        at = self._word.take(text, at)
        if self._word.is_complete:
            self._key = self._word.text
            self._step = self._at_colon
        return at

    def _at_colon(self, text: str, at: int) -> int:
        return self._expect(":", text, at, self._at_value)

    def _at_value(self, text: str, at: int) -> int:
        at = _after(_SPACE, text, at)
        if at == len(text):
            return at
        self._word = JsonWord()
        return self._begin_value(text, at)

    def _in_other(self, text: str, at: int) -> int:
        """In a value that is not passed on."""
        at = self._word.take(text, at)
        if self._word.is_complete:
            self._step = self._at_key
        return at

    def _expect(self, mark: str, text: str, at: int, then: Callable[[str, int], int]) -> int:
        at = _after(_SPACE, text, at)
        if at == len(text):
            return at
        if text[at] != mark:
            return self._break(text, at)
        self._step = then
        return at + 1


def unquote(raw: str) -> str:
    """Return the text between the quotes of a JSON string without its escapes. What is no JSON
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


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    skipped = pattern.match(text, at)
    return skipped.end() if skipped else at
