"""An output that is a sequence of messages, each with a head that names its recipient:

    <|channel|>analysis<|message|>The user says hello.<|end|>
    <|start|>assistant<|channel|>final<|message|>Hello!

The head decides what the body is: reasoning, the answer, or a call. Text is passed on as it
comes, so a message that is cut is not lost. Output without any head is the answer.
"""

import re
from collections.abc import Callable
from contextlib import suppress

from vinery_serving.output.lexer import EndOfText, Lexer, Reading, Tag, UnexpectedText
from vinery_serving.output.parser import Parser
from vinery_serving.output.parsers.base import PlainParser, start_call
from vinery_serving.output.parsers.value_text import JSON, ValueText
from vinery_serving.output.writer import EventWriter

START = "<|start|>"
MESSAGE = "<|message|>"
_RECIPIENT = re.compile(r"\bto=((?:(?!<\|)\S)+)")


def read_messages(
    lexer: Lexer,
    writer: EventWriter,
    heads: tuple[str, ...],
    ends: tuple[str, ...],
    new_body: Callable[[str], Parser],
) -> Reading[None]:
    """Read messages. `heads`: the texts that begin a head; `ends`: the tags that close a
    message; `new_body` returns the parser of a message for its head. The tag of a head closes
    reasoning, too."""
    end_tag, message_tag = Tag(START, *ends), Tag(MESSAGE)
    reasoning_end = Tag(*end_tag.strings, *(head for head in heads if head.startswith("<|")))
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
            tag = reasoning_end if body.is_reasoning else end_tag
            end = yield from lexer.take_until(tag, body.feed)
            lexer.at -= len(end) if end in heads else 0
        except EndOfText as end_of_text:
            body.feed(lexer.take_all())
            body.finish(is_closed=end_of_text.is_closed)
            raise
        body.close()
        writer.end_message()


def recipient_of(head: str) -> str:
    """Return the recipient that a head names; "" without one."""
    recipient = _RECIPIENT.search(head)
    return recipient[1] if recipient else ""


def text_parser(writer: EventWriter, *, is_reasoning: bool) -> Parser:
    """Return the parser of a message that is passed on unchanged: the answer, or reasoning."""
    write = writer.reasoning if is_reasoning else writer.text
    return PlainParser(write, is_reasoning=is_reasoning)


def read_call_message(
    lexer: Lexer, writer: EventWriter, name: str, *, is_custom: bool
) -> Reading[None]:
    """Read a message that is a call: arguments, in JSON or as they are, or the input of a custom
    tool. Text after JSON is dropped. A message that is cut after its last bracket holds a
    complete call."""
    is_complete, is_empty = False, True
    lexer.mark = 0
    try:
        while not lexer.text:
            yield
        start_call(lexer, writer, name)
        first = yield from lexer.peek()
        is_empty = False
        if first == "{" and not is_custom:
            with suppress(UnexpectedText):
                is_complete = yield from ValueText(lexer, JSON, writer.arguments).read()
        while True:
            rest = lexer.take_all()
            writer.arguments("" if is_complete else rest)
            yield
    except EndOfText as end:
        start_call(lexer, writer, name)
        if end.is_closed and is_empty and not is_custom:
            writer.arguments("{}")
        if end.is_closed or is_complete:
            writer.end_call()
