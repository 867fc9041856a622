"""Families that write tool calls in Python: Llama and LFM2.

    [get_weather(city="Paris", days=3), get_time()]

The list is between tags, or alone. Without tags it is a list of calls where it begins with
one of the request's tools. Arguments have names, or are in a dictionary after two stars. They
become JSON text while they grow.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.argument_types import quoted
from vinery_serving.output.parsers.base import ParserFamily, calls_family, start_call
from vinery_serving.output.parsers.literal_text import PYTHON, read_literal
from vinery_serving.output.writer import EventWriter

_NAME: Final = re.compile(r"[\w.\-]*")
_KEY: Final = re.compile(r"[^\s=,()\[\]{}\"']*\s*")


def _read_calls(lexer: Lexer, writer: EventWriter, opening: str, close: str) -> Reading[None]:
    """Read the calls after `opening`, up to and with `close`.

    `opening` is a tag, or the bracket and name of the first call with its parenthesis. A single
    call may do without the brackets.
    """
    if opening.endswith("("):
        is_list, name = True, opening[1:-1]
    else:
        is_list = bool((yield from lexer.take("[")))
        name = yield from _read_name(lexer)
    while (yield from _PythonicCall(lexer, writer, name).read()):
        with lexer.after_call():
            has_comma = is_list and (yield from lexer.take("]", ",")) == ","
            if not has_comma or (yield from lexer.take("]")):
                if close:
                    yield from lexer.take(close)
                return
        name = yield from _read_name(lexer)


def _read_name(lexer: Lexer) -> Reading[str]:
    """Read the name of a call and its parenthesis."""
    yield from lexer.peek()
    name = yield from lexer.take_run(_NAME)
    if not name or (yield from lexer.peek()) != "(":
        raise UnexpectedText
    lexer.at += 1
    return name


class _PythonicCall:
    """Reads one call after its parenthesis."""

    def __init__(self, lexer: Lexer, writer: EventWriter, name: str) -> None:
        self._lexer = lexer
        self._writer = writer
        self._name = name
        self._before = ""  # the JSON text before the next value

    def read(self) -> Reading[bool]:
        """Return whether the call is complete. One that has started can only end. Raises
        `UnexpectedText` for what is no call."""
        is_complete = True
        try:
            yield from self._read_arguments()
        except UnexpectedText:
            if self._lexer.mark is not None:
                raise
            is_complete = False
        self._writer.end_call()
        return is_complete

    def _read_arguments(self) -> Reading[None]:
        lexer, mark = self._lexer, ","
        is_empty, is_whole = True, False  # whole: the arguments are one dictionary
        while mark == "," and (start := (yield from lexer.take(")", "**"))) != ")":
            first = yield from lexer.peek()
            if start:
                if first != "{" or not is_empty:
                    raise UnexpectedText
                is_whole = True
            else:
                key = yield from self._read_key(is_allowed=not is_whole)
                self._before = f"{'{' if is_empty else ', '}{quoted(key)}: "
            is_empty = False
            yield from read_literal(lexer, PYTHON, self._write)
            mark = yield from lexer.peek()
            if mark not in ",)":
                raise UnexpectedText
            lexer.at += 1
        start_call(lexer, self._writer, self._name)
        if not is_whole:
            self._writer.arguments("{}" if is_empty else "}")

    def _read_key(self, *, is_allowed: bool) -> Reading[str]:
        """Read a key and the sign after it."""
        lexer = self._lexer
        run = yield from lexer.take_run(_KEY)
        key = run.rstrip()
        if not (key and is_allowed and lexer.text[lexer.at] == "="):
            lexer.at -= len(run)
            raise UnexpectedText
        lexer.at += 1
        return key

    def _write(self, args: str) -> None:
        """Any text may hold names. With its first value it is sure to be a call."""
        start_call(self._lexer, self._writer, self._name)
        self._writer.arguments(self._before + args)
        self._before = ""


@dataclass(frozen=True, slots=True)
class ListTags:
    """The tags around a list of calls. `end` may be missing in the output; "" is for families
    without one. `is_bare`: the models usually write the list without tags."""

    begin: str
    end: str
    is_bare: bool = False


def _family(tags: ListTags) -> ParserFamily:
    """Return a family that differs from others only in its tags."""

    def opening(tools: Sequence[Tool]) -> Tag:
        return Tag(tags.begin, *(bare_opening(tool) for tool in tools if tags.is_bare))

    def read(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
        return _read_calls(lexer, writer, opening, tags.end)

    return calls_family(opening, read, filter(None, (tags.begin, tags.end)))


def bare_opening(tool: Tool) -> str:
    """Return what begins a list of calls without tags, if this tool is the first."""
    return f"[{tool.name}("


# Llama 3.2 and 3.3, whose models write their tag for code before some lists, and Llama 4.
LLAMA3_TAGS = ListTags("<|python_tag|>", "", is_bare=True)
LLAMA4_TAGS = ListTags("<|python_start|>", "<|python_end|>", is_bare=True)
# LFM2 and LFM2.5.
LFM2_TAGS = ListTags("<|tool_call_start|>", "<|tool_call_end|>")

LLAMA3_PYTHONIC = _family(LLAMA3_TAGS)
LLAMA4_PYTHONIC = _family(LLAMA4_TAGS)
LFM2 = _family(LFM2_TAGS)
