"""Gemma 4: reasoning and calls, each in a form of its own.

    <|channel>thought
    The user asks ...<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>

Keys have no quotes, and strings a mark of their own, without escapes. Several calls may share one
pair of tags.
"""

import re
from collections.abc import Sequence
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.base import (
    ReasoningTags,
    calls_family,
    start_call,
    with_reasoning,
)
from vinery_serving.output.parsers.json_calls import CallTags, read_broken_call, read_residue
from vinery_serving.output.parsers.value_text import GEMMA, Border, ValueText
from vinery_serving.output.writer import EventWriter

OPEN = Tag("<|tool_call>")
CLOSE = Tag("<tool_call|>")
QUOTE = '<|"|>'
REASONING = ReasoningTags(Tag("<|channel>thought", "<|channel>"), Tag("<channel|>"))

_CALL: Final = "call:"
_TAGS: Final = CallTags(OPEN.strings, CLOSE.strings)
_BORDER: Final = Border(_TAGS.all)
_NAME: Final = re.compile(r"[\w.:\-]*")


def _opening(tools: Sequence[Tool]) -> Tag:
    return Tag(OPEN.text, *(f"{_CALL}{tool.name}{{" for tool in tools))


def _read_calls(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
    """Read the calls after an opening tag, up to and with the closing tag. The tag may be missing
    at the beginning of an answer."""
    if opening != OPEN.text:
        if writer.has_text:
            raise UnexpectedText
        lexer.at = lexer.mark or 0
    if not (yield from lexer.take(_CALL, f":{_CALL}")):
        raise UnexpectedText
    is_call = True
    while is_call:
        yield from _read_call(lexer, writer)
        with lexer.after_call():
            yield from read_residue(lexer, _TAGS, next_call=_CALL[0])
            lexer.mark = lexer.at
            is_call = bool((yield from lexer.take(_CALL)))


def _read_call(lexer: Lexer, writer: EventWriter) -> Reading[None]:
    """Read a name and the arguments."""
    yield from lexer.peek()
    name = yield from lexer.take_run(_NAME)
    if not name or (yield from lexer.peek()) != "{":
        raise UnexpectedText
    start_call(lexer, writer, name)
    try:
        yield from ValueText(lexer, GEMMA, writer.arguments, _BORDER).read()
    except UnexpectedText:
        yield from read_broken_call(lexer, writer, _TAGS, is_in_arguments=True)
    writer.end_call()


GEMMA4 = with_reasoning(
    calls_family(_opening, _read_calls, (OPEN.text, CLOSE.text, QUOTE, "<|channel>", "<channel|>")),
    REASONING,
)
