"""An output that is a sequence of messages, each with a head that names its recipient:

    <|channel|>analysis<|message|>The user says hello.<|end|>
    <|start|>assistant<|channel|>final<|message|>Hello!

The head decides what the body is: reasoning, the answer, or a call. Text is passed on as it
comes, so a message that is cut is not lost. Output without any head is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from serving.output.json_text import JsonValue
from serving.output.lexer import Lexer, Tag
from serving.output.parser import EventSink, Parser

START = "<|start|>"
MESSAGE = "<|message|>"


class Body(Protocol):
    """Reads one message."""

    @property
    def is_reasoning(self) -> bool:
        """Whether the message is reasoning."""

    def feed(self, text: str) -> None:
        """Read more text."""

    def end(self, *, is_closed: bool) -> None:
        """The message is over: closed by its tag, or cut."""


class MessagesParser:
    """Reads messages. `heads`: the texts that begin a head; `ends`: the tags that close a
    message; `new_body` returns the reader of a message for its head."""

    def __init__(
        self,
        sink: EventSink,
        heads: tuple[str, ...],
        ends: Tag,
        new_body: Callable[[str], Body],
    ) -> None:
        self._sink = sink
        self._heads = (START, MESSAGE, *heads)
        self._ends = Tag(*ends.texts, START)
        self._message = Tag(MESSAGE)
        self._new_body = new_body
        self._lexer = Lexer()
        self._read: Callable[[], None] = self._before_head
        self._head = ""
        self._body: Body | None = None

    @property
    def is_reasoning(self) -> bool:
        return self._body is not None and self._body.is_reasoning

    def feed(self, text: str) -> None:
        self._lexer.feed(text)
        while True:
            read = self._read
            read()
            if self._read == read:
                return

    def finish(self) -> None:
        """A head that is cut is syntax. What only looks like the beginning of one is text."""
        rest = self._lexer.take_all()
        if self._body is not None:
            if rest:
                self._body.feed(rest)
            self._body.end(is_closed=False)
            return
        text = self._head + rest
        if text.strip() and "<|" not in text:
            self._sink.text(text)

    def _before_head(self) -> None:
        text = self._lexer.text.lstrip()
        if text.startswith(self._heads):
            self._head = ""
            self._read = self._in_head
        elif not any(head.startswith(text) for head in self._heads):
            self._begin_body("")

    def _in_head(self) -> None:
        head, is_complete = self._lexer.take_until(self._message)
        self._head += head
        if is_complete:
            self._begin_body(self._head.rpartition(START)[2])

    def _begin_body(self, head: str) -> None:
        self._body = self._new_body(head)
        self._head = ""
        self._read = self._in_body

    def _in_body(self) -> None:
        body = self._body
        assert body is not None
        text, end = self._lexer.take_until_any(self._ends)
        if text:
            body.feed(text)
        if not end:
            return
        body.end(is_closed=True)
        self._sink.end_message()
        self._body = None
        self._read = self._in_head if end == START else self._before_head


class TextBody:
    """A message that is passed on unchanged: the answer, or reasoning."""

    def __init__(self, sink: EventSink, *, is_reasoning: bool) -> None:
        self.is_reasoning = is_reasoning
        self.feed = sink.reasoning if is_reasoning else sink.text

    def end(self, *, is_closed: bool) -> None:
        pass


class CallBody:
    """A message that is the arguments of a call, in JSON. Text after them is dropped."""

    is_reasoning = False

    def __init__(self, sink: EventSink, name: str) -> None:
        self._sink = sink
        self._name = name
        self._is_started = False
        self._value = JsonValue()
        self._has_text = False
        self._is_over = False

    def feed(self, text: str) -> None:
        self._start()
        args = text if self._has_text else text.lstrip()
        if args and not self._is_over:
            self._has_text = True
            end = self._value.scan(args, 0)
            self._is_over = end is not None
            self._sink.arguments(args[:end])

    def end(self, *, is_closed: bool) -> None:
        """A message that is cut after its last bracket holds a complete call."""
        self._start()
        if is_closed and not self._has_text:
            self._sink.arguments("{}")
        if is_closed or (self._is_over and not self._value.is_broken):
            self._sink.end_call()

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._sink.start_call(self._name)


class ParserBody:
    """A message that another parser reads."""

    is_reasoning = False

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self.feed = parser.feed

    def end(self, *, is_closed: bool) -> None:
        self._parser.finish()
