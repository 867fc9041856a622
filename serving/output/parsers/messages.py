"""An output that is a sequence of messages, each with a head that names its recipient:

    <|channel|>analysis<|message|>The user says hello.<|end|>
    <|start|>assistant<|channel|>final<|message|>Hello!

The head decides what the body is: reasoning, the answer, or a call. Text is passed on as it
comes, so a message that is cut is not lost. Output without any head is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from serving.output.json_text import read_value
from serving.output.lexer import EndOfText, Lexer, Reading, Tag
from serving.output.parser import Parser
from serving.output.writer import EventWriter

START = "<|start|>"
MESSAGE = "<|message|>"
_RECIPIENT = re.compile(r"\bto=((?:(?!<\|)\S)+)")


@dataclass(frozen=True, slots=True)
class Body:
    """Reads one message. `end` is called when the message is over: with True if it was closed by
    its tag, with False if it was cut."""

    feed: Callable[[str], None]
    end: Callable[[bool], None]
    is_reasoning: bool = False


def read_messages(
    lexer: Lexer,
    writer: EventWriter,
    heads: tuple[str, ...],
    ends: tuple[str, ...],
    new_body: Callable[[str], Body],
) -> Reading[None]:
    """Read messages. `heads`: the texts that begin a head; `ends`: the tags that close a
    message; `new_body` returns the reader of a message for its head."""
    end_tag, message_tag = Tag(START, *ends), Tag(MESSAGE)
    end = ""
    while True:
        lexer.is_reasoning = False
        head: list[str] = []
        try:
            if end == START or (yield from lexer.next_of(START, MESSAGE, *heads)):
                yield from lexer.take_until(message_tag, head.append)
        except EndOfText:
            # A head that is cut is syntax. What only looks like the beginning of one is text.
            text = "".join(head) + lexer.take_all()
            if text.strip() and "<|" not in text:
                writer.text(text)
            raise
        body = new_body("".join(head).rpartition(START)[2])
        lexer.is_reasoning = body.is_reasoning
        try:
            end = yield from lexer.take_until(end_tag, body.feed)
        except EndOfText:
            body.feed(lexer.take_all())
            body.end(False)
            raise
        body.end(True)
        writer.end_message()


def recipient_of(head: str) -> str:
    """Return the recipient that a head names; "" without one."""
    recipient = _RECIPIENT.search(head)
    return recipient[1] if recipient else ""


def text_body(writer: EventWriter, *, is_reasoning: bool) -> Body:
    """A message that is passed on unchanged: the answer, or reasoning."""
    return Body(writer.reasoning if is_reasoning else writer.text, lambda _: None, is_reasoning)


def parser_body(parser: Parser) -> Body:
    """A message that another parser reads."""
    return Body(parser.feed, lambda _: parser.finish())


def call_body(writer: EventWriter, name: str) -> Body:
    """A message that is the arguments of a call, in JSON. Text after them is dropped."""
    call = _CallBody(writer, name)
    return Body(call.feed, call.end)


class _CallBody:
    def __init__(self, writer: EventWriter, name: str) -> None:
        self._writer = writer
        self._name = name
        self._is_started = False
        self._has_arguments = False
        self._is_complete = False
        self._parser = Parser(self._read)

    def feed(self, text: str) -> None:
        if text:
            self._start()
            self._parser.feed(text)

    def end(self, is_closed: bool) -> None:  # noqa: FBT001
        """A message that is cut after its last bracket holds a complete call."""
        self._start()
        if is_closed and not self._has_arguments:
            self._writer.arguments("{}")
        if is_closed or self._is_complete:
            self._writer.end_call()

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._writer.start_call(self._name)

    def _read(self, lexer: Lexer) -> Reading[None]:
        yield from lexer.peek()
        self._has_arguments = True
        self._is_complete = yield from read_value(lexer, self._writer.arguments)
        while True:
            lexer.take_all()
            yield
