"""Reads the text form of protocol buffers, as far as `graph.pbtxt` files use it.

Protobuf's own reader needs the descriptions of all messages, which are in MediaPipe and in the
model server. Here a message is a dictionary of lists: each field may be repeated.
"""

import ast
import re
from typing import Final

Value = str | int | float | bool | dict[str, list["Value"]]
Message = dict[str, list[Value]]

_TOKEN: Final = re.compile(
    r"""(?:\s|\#[^\n]*)+ | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<word>[-+]?[A-Za-z0-9_.+-]+) | (?P<mark>[{}<>\[\]:;,/])""",
    re.VERBOSE,
)
_CLOSING: Final = {"{": "}", "<": ">"}
# Graphs are flat. Deeper ones are no graphs, and would exhaust the stack.
_MAX_DEPTH: Final = 50


def parse(text: str) -> Message:
    """Return the message of a file. Raises ValueError with the line of what cannot be read."""
    return _Reader(text).message(None, 0)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []  # kind, token, position
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._error(at, f"{text[at]!r} is not expected")
            if found.lastgroup is not None:
                self._tokens.append((found.lastgroup, found[0], at))
            at = found.end()
        self._tokens.append(("end", "the end of the file", len(text)))
        self._index = 0

    def message(self, end: str | None, depth: int) -> Message:
        """Read the fields up to `end`; None: that of the file."""
        if depth > _MAX_DEPTH:
            raise self._unexpected()
        fields: Message = {}
        while not self._takes(end):
            name = self._name()
            self._takes(":")
            fields.setdefault(name, []).extend(self._values(depth))
            self._takes(",") or self._takes(";")
        return fields

    def _name(self) -> str:
        """Read a field's name, or the last part of the name of an extension in brackets."""
        if not self._takes("["):
            return self._take("word")
        name = self._take("word")
        while not self._takes("]"):
            name = self._take("word") if not self._takes("/") else name
        return name.rpartition(".")[2]

    def _values(self, depth: int) -> list[Value]:
        if not self._takes("["):
            return [self._value(depth)]
        values: list[Value] = []
        while not self._takes("]"):
            values.append(self._value(depth))
            self._takes(",")
        return values

    def _value(self, depth: int) -> Value:
        for opening, closing in _CLOSING.items():
            if self._takes(opening):
                return self.message(closing, depth + 1)
        kind, token, at = self._tokens[self._index]
        if kind == "word":
            self._index += 1
            return _scalar(token)
        texts = []
        while self._tokens[self._index][0] == "text":  # texts in a row are one
            texts.append(self._string())
        if not texts:
            raise self._error(at, f"{token} is not expected")
        return "".join(texts)

    def _string(self) -> str:
        _, token, at = self._tokens[self._index]
        self._index += 1
        try:
            return str(ast.literal_eval(token))
        except (ValueError, SyntaxError):
            raise self._error(at, "the text has a wrong escape") from None

    def _takes(self, mark: str | None) -> bool:
        kind, token, _ = self._tokens[self._index]
        is_there = kind == "end" if mark is None else kind == "mark" and token == mark
        self._index += is_there and mark is not None
        return is_there

    def _take(self, kind: str) -> str:
        found, token, _ = self._tokens[self._index]
        if found != kind:
            raise self._unexpected()
        self._index += 1
        return token

    def _unexpected(self) -> ValueError:
        _, token, at = self._tokens[self._index]
        return self._error(at, f"{token} is not expected")

    def _error(self, at: int, what: str) -> ValueError:
        line = self._text.count("\n", 0, at) + 1
        return ValueError(f"line {line}: {what}")


def _scalar(word: str) -> Value:
    """Return a number or a boolean; an enumeration's value stays a word."""
    if word.lower() in ("true", "t"):
        return True
    if word.lower() in ("false", "f"):
        return False
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word
