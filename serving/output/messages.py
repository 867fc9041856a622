"""An output that is a row of messages, each with a head that says whom it is for:

    <|channel|>analysis<|message|>The user says hello.<|end|>
    <|start|>assistant<|channel|>final<|message|>Hello!

The head decides what the body is: a thought, the answer, or a call. Text is told as it
comes, so that a message which is cut is not lost. Output without any head is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from serving.output.json_text import JsonValue
from serving.output.lexer import Lexer, Tag
from serving.output.parse_events import (
    CallArgs,
    CallEnded,
    CallStarted,
    Parser,
    Piece,
    Reasoning,
    Text,
)

START = "<|start|>"
MESSAGE = "<|message|>"

# What stands between two messages of one kind, which clients get as one text.
_GAP = "\n"


class Body(Protocol):
    """Reads one message."""

    @property
    def is_reasoning(self) -> bool:
        """Whether it is a thought."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that more text makes."""

    def end(self, *, is_closed: bool) -> list[Piece]:
        """The message is over: closed by its tag, or cut."""


class MessagesParser:
    """Reads messages. `heads`: what a head begins with; `ends`: the tags that close a
    message; `new_body`: given the head, the reader of its message."""

    def __init__(self, heads: tuple[str, ...], ends: Tag, new_body: Callable[[str], Body]) -> None:
        self._heads = (START, MESSAGE, *heads)
        self._ends = Tag(*ends.texts, START)
        self._message = Tag(MESSAGE)
        self._new_body = new_body
        self._lexer = Lexer()
        self._read: Callable[[], list[Piece]] = self._before_head
        self._head = ""
        self._body: Body | None = None
        # Kinds of text: those of earlier messages, and those of this one.
        self._said: set[type] = set()
        self._saying: set[type] = set()

    @property
    def is_reasoning(self) -> bool:
        return self._body is not None and self._body.is_reasoning

    def feed(self, text: str) -> list[Piece]:
        self._lexer.feed(text)
        pieces: list[Piece] = []
        while True:
            read = self._read
            pieces += read()
            if self._read == read:
                return pieces

    def finish(self) -> list[Piece]:
        """A head that is cut is syntax; what only looks like the beginning of one is text."""
        rest = self._lexer.take_all()
        if self._body is not None:
            pieces = self._body.feed(rest) if rest else []
            return self._spaced(pieces + self._body.end(is_closed=False))
        text = self._head + rest
        return [] if not text.strip() or "<|" in text else [Text(text)]

    def _before_head(self) -> list[Piece]:
        text = self._lexer.text.lstrip()
        if text.startswith(self._heads):
            self._head = ""
            self._read = self._in_head
        elif not any(head.startswith(text) for head in self._heads):
            self._begin_body("")
        return []

    def _in_head(self) -> list[Piece]:
        head, is_complete = self._lexer.take_until(self._message)
        self._head += head
        if is_complete:
            self._begin_body(self._head.rpartition(START)[2])
        return []

    def _begin_body(self, head: str) -> None:
        self._body = self._new_body(head)
        self._head = ""
        self._read = self._in_body

    def _in_body(self) -> list[Piece]:
        body = self._body
        assert body is not None
        text, end = self._lexer.take_until_any(self._ends)
        pieces = body.feed(text) if text else []
        if not end:
            return self._spaced(pieces)
        pieces = self._spaced(pieces + body.end(is_closed=True))
        self._said |= self._saying
        self._saying = set()
        self._body = None
        self._read = self._in_head if end == START else self._before_head
        return pieces

    def _spaced(self, pieces: list[Piece]) -> list[Piece]:
        """With a line break before the first text of a message, where there was one before."""
        spaced: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, Text | Reasoning):
                kind = type(piece)
                is_next = kind in self._said and kind not in self._saying
                self._saying.add(kind)
                spaced.append(kind(_GAP + piece.text) if is_next else piece)
            else:
                spaced.append(piece)
        return spaced


class TextBody:
    """A message that is told as it is: the answer, or a thought."""

    def __init__(self, kind: type[Text] | type[Reasoning]) -> None:
        self._kind = kind
        self.is_reasoning = kind is Reasoning

    def feed(self, text: str) -> list[Piece]:
        return [self._kind(text)]

    def end(self, *, is_closed: bool) -> list[Piece]:
        return []


class CallBody:
    """A message that is the arguments of a call, in JSON. What follows them is nothing."""

    is_reasoning = False

    def __init__(self, name: str) -> None:
        self._untold: list[Piece] = [CallStarted(name)]
        self._value = JsonValue()
        self._has_text = False
        self._is_over = False

    def feed(self, text: str) -> list[Piece]:
        pieces, self._untold = self._untold, []
        args = text if self._has_text else text.lstrip()
        if args and not self._is_over:
            self._has_text = True
            end = self._value.scan(args, 0)
            self._is_over = end is not None
            pieces.append(CallArgs(args[:end]))
        return pieces

    def end(self, *, is_closed: bool) -> list[Piece]:
        """Cut behind its last bracket it is complete all the same."""
        pieces = self._untold
        if is_closed and not self._has_text:
            pieces.append(CallArgs("{}"))
        is_complete = self._is_over and not self._value.is_broken
        return [*pieces, CallEnded()] if is_closed or is_complete else pieces


class ParserBody:
    """A message that another parser reads."""

    is_reasoning = False

    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def feed(self, text: str) -> list[Piece]:
        return self._parser.feed(text)

    def end(self, *, is_closed: bool) -> list[Piece]:
        return self._parser.finish()
