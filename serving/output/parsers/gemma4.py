"""Gemma 4: reasoning and calls, each in a form of its own.

    <|channel>thought
    The user asks ...<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>

Keys have no quotes, and strings a mark of their own, without escapes.
"""

from __future__ import annotations

import re
from typing import Final

from serving.output.lexer import Lexer, Reading, Tag, UnexpectedText
from serving.output.parser import EventSink
from serving.output.parsers.base import ReasoningTags, calls_family
from serving.output.parsers.literal_text import GEMMA, read_literal
from serving.output.parsers.reasoning import with_reasoning

OPEN = Tag("<|tool_call>")
CLOSE = Tag("<tool_call|>")
QUOTE = '<|"|>'
REASONING = ReasoningTags(Tag("<|channel>thought"), Tag("<channel|>"))

_NAME: Final = re.compile(r"[\w.\-]*")


def _read_call(lexer: Lexer, sink: EventSink, *_: object) -> Reading[None]:
    """Read one call after its opening tag, up to and with the closing tag."""
    if not (yield from lexer.take("call:")):
        raise UnexpectedText
    name = yield from lexer.take_run(_NAME)
    if not name or (yield from lexer.peek()) != "{":
        raise UnexpectedText
    lexer.mark = None
    sink.start_call(name)
    try:
        yield from read_literal(lexer, GEMMA, sink.arguments)
    except UnexpectedText:
        sink.end_call()
        return
    sink.end_call()
    yield from lexer.take(CLOSE.text)


GEMMA4 = with_reasoning(
    calls_family(OPEN, _read_call, (OPEN.text, CLOSE.text, QUOTE, "<|channel>", "<channel|>")),
    REASONING,
)
