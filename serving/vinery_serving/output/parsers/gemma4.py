"""The reasoning and calls of Gemma 4.

    <|channel>thought
    The user asks ...<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>

Keys have no quotes; strings have special marks and no escapes. Several calls may share one pair of
tags. FunctionGemma writes the same with other marks:

    <start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.base import (
    ParserFamily,
    ReasoningTags,
    calls_family,
    start_call,
    with_reasoning,
)
from vinery_serving.output.parsers.json_calls import CallTags, read_broken_call, read_residue
from vinery_serving.output.parsers.respelling import Notation, gemma_notation
from vinery_serving.output.parsers.value_text import JsonText, read_arguments
from vinery_serving.output.writer import EventWriter

TAGS: Final = CallTags(("<|tool_call>",), ("<tool_call|>",))
QUOTE: Final = '<|"|>'
REASONING: Final = ReasoningTags(Tag("<|channel>thought", "<|channel>"), Tag("<channel|>"))
# The models end with the tag of the response that they wait for.
FUNCTION_TAGS: Final = CallTags(
    ("<start_function_call>",), ("<end_function_call>", "<start_function_response>")
)
ESCAPE: Final = "<escape>"

_CALL: Final = "call:"
_NAME: Final = re.compile(r"[\w.:\-]*")


def _family(tags: CallTags, quote: str) -> ParserFamily:
    def opening(tools: Sequence[Tool]) -> Tag:
        return Tag(*tags.open, *(f"{_CALL}{tool.name}{{" for tool in tools))

    read = partial(_read_calls, tags, gemma_notation(quote))
    return calls_family(opening, read, (*tags.all, quote))


def _read_calls(
    tags: CallTags, notation: Notation, lexer: Lexer, writer: EventWriter, opening: str, _: object
) -> Reading[None]:
    """Read the calls after an opening tag, up to and with the closing tag. The tag may be missing
    at the beginning of an answer."""
    if opening not in tags.open:
        if writer.has_text:
            raise UnexpectedText
        lexer.at = lexer.mark or 0
    if not (yield from lexer.take(_CALL, f":{_CALL}")):
        raise UnexpectedText
    is_call = True
    while is_call:
        yield from _read_call(lexer, writer, tags, notation)
        with lexer.after_call():
            yield from read_residue(lexer, tags, next_call=_CALL[0])
            lexer.mark = lexer.at
            is_call = bool((yield from lexer.take(_CALL)))


def _read_call(
    lexer: Lexer, writer: EventWriter, tags: CallTags, notation: Notation
) -> Reading[None]:
    yield from lexer.peek()
    name = yield from lexer.take_run(_NAME)
    if not name or (yield from lexer.peek()) != "{":
        raise UnexpectedText
    if (yield from lexer.peek_text('{"', "{")) == '{"':  # as JSON, which grammars force
        start_call(lexer, writer, name)
        try:
            yield from JsonText(lexer, writer.arguments, tags.all, notation=notation).read()
        except UnexpectedText:
            yield from read_broken_call(lexer, writer, tags, is_in_arguments=True)
    else:
        args = yield from read_arguments(lexer, notation, tags.all)
        start_call(lexer, writer, name)
        writer.arguments(args)
    writer.end_call()


FUNCTIONGEMMA: Final = _family(FUNCTION_TAGS, ESCAPE)
GEMMA4: Final = with_reasoning(_family(TAGS, QUOTE), REASONING)
