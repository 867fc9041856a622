"""Families that write tool calls in Python: Llama and LFM2.

    [get_weather(city="Paris", days=3), get_time()]

The list is between tags, or alone. A list without tags must begin with one of the request's tools.
Arguments have names, or are in a dictionary after two stars. The arguments of a call become JSON
text when the call is complete.
"""

import re
from collections.abc import Sequence
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.base import ParserFamily, calls_family, start_call
from vinery_serving.output.parsers.drafts import Draft
from vinery_serving.output.parsers.json_calls import CallTags, read_residue
from vinery_serving.output.parsers.respelling import PYTHON
from vinery_serving.output.parsers.value_text import read_arguments
from vinery_serving.output.writer import EventWriter

_NAME: Final = re.compile(r"[\w.\-]*")
# With surplus brackets.
_AFTER_CALL: Final = re.compile(r"[\s,;)}]*")


def _read_calls(lexer: Lexer, writer: EventWriter, opening: str, tags: CallTags) -> Reading[None]:
    """Read the calls after `opening`, up to and with the closing tag. `opening` is a tag, or the
    bracket and name of the first call with its parenthesis. Several calls may do without the
    brackets and commas."""
    is_bare = opening.endswith("(")
    name = opening[1:-1] if is_bare else ""
    if not is_bare:
        yield from lexer.take("[")
        name = yield from _read_name(lexer)
    written: list[str] = []
    yield from _read_list(lexer, writer, name, tags, written, is_bare=is_bare)
    if tags.close and lexer.text[lexer.mark : lexer.at].rstrip().endswith(tags.close):
        yield from _read_echo(lexer, writer, tags, written)


def _read_list(
    lexer: Lexer,
    writer: EventWriter,
    name: str,
    tags: CallTags,
    written: list[str],
    *,
    is_bare: bool = False,
) -> Reading[None]:
    """Read calls after the name of the first call. `written` gets the names and arguments.
    `is_bare`: no tag has opened the list, and text that is no valid Python is no call."""
    while name:
        args = yield from read_arguments(lexer, PYTHON, tags.all, is_strict=is_bare)
        start_call(lexer, writer, name)
        writer.arguments(args)
        writer.end_call()
        written += (name, args)
        with lexer.after_call():
            name = yield from _read_next_name(lexer, tags)


def _read_echo(
    lexer: Lexer, writer: EventWriter, tags: CallTags, before: list[str]
) -> Reading[None]:
    """Read a list after the closing tag of another list. LFM2.5 repeats lists, so a list that
    repeats the beginning of the former list has no calls."""
    lexer.mark = lexer.at
    written: list[str] = []
    draft = Draft(writer)
    try:
        if not (yield from lexer.take("[")):
            return
        name = yield from _read_name(lexer)
        yield from _read_list(lexer, draft, name, tags, written)
    except UnexpectedText:
        lexer.at = lexer.at if lexer.mark is None else lexer.mark
    finally:
        if not "".join(before).startswith("".join(written)):
            draft.commit()


def _read_next_name(lexer: Lexer, tags: CallTags) -> Reading[str]:
    """Read the name of the next call; "" after the end of the list, which is read too."""
    yield from lexer.peek(_AFTER_CALL)
    try:
        return (yield from _read_name(lexer))
    except UnexpectedText:
        lexer.at = lexer.mark or 0
        yield from read_residue(lexer, tags)
        return ""


def _read_name(lexer: Lexer) -> Reading[str]:
    yield from lexer.peek()
    name = yield from lexer.take_run(_NAME)
    if not name or (yield from lexer.peek()) != "(":
        raise UnexpectedText
    lexer.at += 1
    return name


def _family(tags: CallTags, *, is_bare: bool = False) -> ParserFamily:
    """`is_bare`: the models usually write the list without tags."""

    def opening(tools: Sequence[Tool]) -> Tag:
        return Tag(*tags.open, *(bare_opening(tool) for tool in tools if is_bare))

    def read(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
        return _read_calls(lexer, writer, opening, tags)

    return calls_family(opening, read, tags.all, dropped=tags.close)


def bare_opening(tool: Tool) -> str:
    return f"[{tool.name}("


# Llama 3.2 and 3.3, whose models write their tag for code before some lists, and Llama 4.
LLAMA3_PYTHONIC = _family(CallTags(("<|python_tag|>",)), is_bare=True)
LLAMA4_PYTHONIC = _family(CallTags(("<|python_start|>",), ("<|python_end|>",)), is_bare=True)
LFM2_TAGS = CallTags(("<|tool_call_start|>",), ("<|tool_call_end|>",))  # and those of LFM2.5
LFM2 = _family(LFM2_TAGS)
