"""Gemma 4: reasoning and calls, each in a form of its own.

    <|channel>thought
    The user asks ...<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>

Keys have no quotes, and strings a mark of their own, without escapes.
"""

import re
from typing import Final

from vinery_serving.output.lexer import Lexer, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.base import (
    ReasoningTags,
    calls_family,
    start_call,
    with_reasoning,
)
from vinery_serving.output.parsers.literal_text import GEMMA, read_literal
from vinery_serving.output.writer import EventWriter

OPEN = Tag("<|tool_call>")
CLOSE = Tag("<tool_call|>")
QUOTE = '<|"|>'
REASONING = ReasoningTags(Tag("<|channel>thought"), Tag("<channel|>"))

_NAME: Final = re.compile(r"[\w.\-]*")


def _read_call(lexer: Lexer, writer: EventWriter, *_: object) -> Reading[None]:
    """Read one call after its opening tag, up to and with the closing tag."""
    if not (yield from lexer.take("call:")):
        raise UnexpectedText
    name = yield from lexer.take_run(_NAME)
    if not name or (yield from lexer.peek()) != "{":
        raise UnexpectedText
    start_call(lexer, writer, name)
    try:
        yield from read_literal(lexer, GEMMA, writer.arguments)
    except UnexpectedText:
        writer.end_call()
        return
    writer.end_call()
    yield from lexer.take(CLOSE.text)


GEMMA4 = with_reasoning(
    calls_family(OPEN, _read_call, (OPEN.text, CLOSE.text, QUOTE, "<|channel>", "<channel|>")),
    REASONING,
)
