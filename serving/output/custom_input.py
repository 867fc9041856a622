"""The input of a custom tool, out of the arguments that the model writes.

    {"input": "print(\\"hi\\")\\n"}        becomes        print("hi")

The model sees such a tool as a function of one string (see `core/tools`). The string is passed
on without its escapes while it grows. Arguments of another form are not lost: a value that is no
string is passed on as JSON, and arguments without an input as they were written.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.core.tools import INPUT
from serving.output.json_text import read_key, read_unquoted, read_value
from serving.output.lexer import Lexer, Reading, UnexpectedText
from serving.output.parser import Parser


class CustomInput:
    """Reads the arguments of one call."""

    def __init__(self) -> None:
        self._input: list[str] = []
        self._parser = Parser(self._read)

    def feed(self, args: str) -> str:
        """Return what more arguments add to the input."""
        self._parser.feed(args)
        return self._take()

    def end(self) -> str:
        """Return the rest of the input when the call is complete."""
        undecided = self._parser.text if self._parser.mark is not None else ""
        return undecided + self.cut()

    def cut(self) -> str:
        """Return the rest when the call is cut: what is not yet an input is dropped."""
        self._parser.finish()
        return self._take()

    def _take(self) -> str:
        text = "".join(self._input)
        self._input.clear()
        return text

    def _read(self, lexer: Lexer) -> Reading[None]:
        """All arguments are marked until it is decided what the input is."""
        lexer.mark = 0
        write: Callable[[str], None] = _drop
        try:
            has_input = yield from _find_input(lexer)
            lexer.mark = None
            if has_input:
                yield from read_unquoted(lexer, self._input.append)
        except UnexpectedText:
            lexer.at, lexer.mark = 0, None
            write = self._input.append
        while True:
            write(lexer.take_all())
            yield


def _find_input(lexer: Lexer) -> Reading[bool]:
    """Read up to the input: the value of its key, or a string alone. Returns False for an empty
    object. Raises `UnexpectedText` for arguments without an input."""
    first = yield from lexer.peek()
    if first != "{":
        if first != '"':
            raise UnexpectedText
        return True
    lexer.at += 1
    is_empty = True
    while (key := (yield from read_key(lexer))) is not None:
        if key == INPUT:
            return True
        is_empty = False
        yield from read_value(lexer, _drop)
    if not is_empty:
        raise UnexpectedText
    return False


def _drop(_: str) -> None:
    pass
