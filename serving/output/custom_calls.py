"""Calls of custom tools: from the arguments that the model writes to the text that they hold.

    {"input": "print(\\"hi\\")\\n"}        is told as        print("hi")

Towards the model such a tool is a function of one string (see `core/custom`). The string is
told without its escapes while it grows. Whatever else the arguments are is not lost: a value
that is no string is told as its JSON, and arguments without an input as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from serving.core.request import Tool
from serving.core.tools import INPUT
from serving.output.json_text import JsonUnquote, JsonValue, unquote
from serving.output.parse_events import CallArgs, CallEnded, CallInput, CallStarted, Parser, Piece

_SPACE = re.compile(r"\s*")
_SPACE_AND_COMMAS = re.compile(r"[\s,]*")


def with_custom_calls(parser: Parser, tools: Sequence[Tool]) -> Parser:
    """`parser` itself, or one that tells what calls of custom tools are given."""
    names = frozenset(tool.name for tool in tools if tool.is_custom)
    return CustomCallsParser(parser, names) if names else parser


class CustomCallsParser:
    """Another parser, whose calls of the tools of these names are told as texts."""

    def __init__(self, parser: Parser, names: Collection[str]) -> None:
        self._parser = parser
        self._names = names
        self._input: _Input | None = None

    @property
    def is_reasoning(self) -> bool:
        return self._parser.is_reasoning

    def feed(self, text: str) -> list[Piece]:
        return self._told(self._parser.feed(text))

    def finish(self) -> list[Piece]:
        pieces = self._told(self._parser.finish())
        return pieces if self._input is None else pieces + _said(self._input.cut())

    def _told(self, pieces: Iterable[Piece]) -> list[Piece]:
        told: list[Piece] = []
        for piece in pieces:
            match piece:
                case CallStarted(name) if name in self._names:
                    self._input = _Input()
                    told.append(CallStarted(name, is_custom=True))
                case CallArgs(text) if self._input is not None:
                    told += _said(self._input.feed(text))
                case CallEnded() if self._input is not None:
                    told += [*_said(self._input.end()), piece]
                    self._input = None
                case _:
                    told.append(piece)
        return told


def _said(text: str) -> list[Piece]:
    return [CallInput(text)] if text else []


class _Input:
    """Reads the arguments of one call."""

    def __init__(self) -> None:
        # All arguments so far: what to tell if there is no input among them.
        self._written = ""
        self._told: list[str] = []
        self._has_members = False
        self._value = JsonValue()
        self._unquote = JsonUnquote()
        self._has_quote = False
        self._key = ""
        # Takes some of the text from an index on, and returns where it stopped.
        self._step: Callable[[str, int], int] = self._at_start

    def feed(self, args: str) -> str:
        """What more arguments add to the input."""
        if self._is_undecided:
            self._written += args
        at = 0
        while at < len(args):
            at = self._step(args, at)
        return self._take()

    def end(self) -> str:
        """What is left when the call is complete."""
        if self._is_undecided:
            self._tell_written()
        return self._take() + self._unquote.finish()

    def cut(self) -> str:
        """What is left when the call is not: nothing is made of what is not yet an input."""
        return self._unquote.finish()

    def _take(self) -> str:
        told, self._told = "".join(self._told), []
        return told

    @property
    def _is_undecided(self) -> bool:
        return self._step not in (self._in_input, self._as_written, self._after_input)

    def _at_start(self, text: str, at: int) -> int:
        at = _after(_SPACE, text, at)
        if at == len(text):
            return at
        match text[at]:
            case "{":
                self._step = self._at_key
                return at + 1
            case '"':
                self._step = self._in_input
                return at
            case _:
                return self._tell_written(len(text))

    def _at_key(self, text: str, at: int) -> int:
        at = _after(_SPACE_AND_COMMAS, text, at)
        if at == len(text):
            return at
        match text[at]:
            case '"':
                self._has_members = True
                self._key = ""
                self._value = JsonValue()
                self._step = self._in_key
                return at
            case "}" if not self._has_members:
                self._step = self._after_input
                return at
            case _:
                return self._tell_written(len(text))

    def _in_key(self, text: str, at: int) -> int:
        end = self._value.scan(text, at)
        self._key += text[at:end]
        if end is None:
            return len(text)
        self._step = self._at_colon
        return end

    def _at_colon(self, text: str, at: int) -> int:
        at = _after(_SPACE, text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._tell_written(len(text))
        self._step = self._at_value
        return at + 1

    def _at_value(self, text: str, at: int) -> int:
        at = _after(_SPACE, text, at)
        if at < len(text):
            self._value = JsonValue()
            is_input = unquote(self._key[1:-1]) == INPUT
            self._step = self._in_input if is_input else self._in_other
        return at

    def _in_other(self, text: str, at: int) -> int:
        end = self._value.scan(text, at)
        if end is None:
            return len(text)
        if self._value.is_broken:
            return self._tell_written(len(text))
        self._step = self._at_key
        return end

    def _in_input(self, text: str, at: int) -> int:
        end = self._value.scan(text, at)
        grown = text[at:end]
        if self._value.is_string:
            grown = self._inside(grown, is_closed=end is not None)
        self._told.append(grown)
        if end is None:
            return len(text)
        self._step = self._after_input
        return end

    def _inside(self, grown: str, *, is_closed: bool) -> str:
        """The meaning of what stands between the quotes."""
        if not self._has_quote:
            self._has_quote = True
            grown = grown[1:]
        if not is_closed:
            return self._unquote.feed(grown)
        return self._unquote.feed(grown[:-1]) + self._unquote.finish()

    def _tell_written(self, at: int = 0) -> int:
        """There is no input among the arguments, so they are it."""
        self._told.append(self._written)
        self._step = self._as_written
        return at

    def _as_written(self, text: str, at: int) -> int:
        self._told.append(text[at:])
        return len(text)

    def _after_input(self, text: str, at: int) -> int:
        return len(text)


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    skipped = pattern.match(text, at)
    return skipped.end() if skipped else at
