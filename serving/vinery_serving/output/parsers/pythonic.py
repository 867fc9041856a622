"""Families that write tool calls in Python: Llama and LFM2.

    [get_weather(city="Paris", days=3), get_time()]

The list is between tags, or alone. A list without tags must begin with one of the request's tools.
Arguments have names, or are in a dictionary after two stars. Growing arguments become JSON text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import EndOfText, Lexer, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.base import ParserFamily, calls_family, start_call
from vinery_serving.output.parsers.drafts import Draft
from vinery_serving.output.parsers.json_calls import CallTags, read_broken_call, read_residue
from vinery_serving.output.parsers.string_text import quoted
from vinery_serving.output.parsers.value_text import PYTHON, Border, ValueText, skip_comment
from vinery_serving.output.writer import EventWriter

_NAME: Final = re.compile(r"[\w.\-]*")
_KEY: Final = re.compile(r"([^\s=:,()\[\]{}\"']{1,128})\s{0,64}=")
_UNFINISHED_KEY: Final = re.compile(r"[^\s=:,()\[\]{}\"']{0,128}\s{0,64}")
_SEPARATORS: Final = re.compile(r"[\s,;]*")
# The same, and surplus brackets.
_AFTER_VALUE: Final = re.compile(r"[\s,;}]*")
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
    """Read calls after the name of the first call. `written` gets the names and arguments."""
    while name:
        written.append(name)
        yield from _PythonicCall(lexer, writer, name, tags, written, is_bare=is_bare).read()
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
    yield from _peek(lexer, tags, _AFTER_CALL)
    try:
        return (yield from _read_name(lexer))
    except UnexpectedText:
        lexer.at = lexer.mark or 0
        yield from read_residue(lexer, tags)
        return ""


def _read_name(lexer: Lexer) -> Reading[str]:
    """Read the name of a call and its parenthesis."""
    yield from lexer.peek()
    name = yield from lexer.take_run(_NAME)
    if not name or (yield from lexer.peek()) != "(":
        raise UnexpectedText
    lexer.at += 1
    return name


def _peek(lexer: Lexer, tags: CallTags, skipped: re.Pattern[str]) -> Reading[str]:
    """Skip what `skipped` matches, and comments. Return the next character."""
    while (mark := (yield from lexer.peek(skipped))) == "#":
        yield from skip_comment(lexer, tags.all)
    return mark


@dataclass(slots=True)
class _PythonicCall:
    """Reads one call after its parenthesis. `is_bare`: no tag has opened the list."""

    _lexer: Lexer
    _writer: EventWriter
    _name: str
    _tags: CallTags
    _written: list[str]
    is_bare: bool
    _before: str = ""  # the JSON text before the next value
    _is_whole: bool = False  # the arguments are one dictionary
    _is_in_value: bool = False

    def read(self) -> Reading[None]:
        """Read up to and with the last parenthesis. A call that has started can only end. Raises
        `UnexpectedText` for text that is no call."""
        lexer, writer = self._lexer, self._writer
        try:
            yield from self._read_arguments()
        except UnexpectedText:
            if lexer.mark is not None:
                raise
            yield from read_broken_call(lexer, writer, self._tags, is_in_arguments=True)
            writer.end_call()
        except EndOfText as end:
            if end.is_closed and lexer.mark is None and not self._is_in_value:
                self._end(is_empty=False)
            raise

    def _read_arguments(self) -> Reading[None]:
        lexer, is_empty = self._lexer, True
        while not (yield from self._is_at_end()):
            if (yield from lexer.take("**")):
                if (yield from lexer.peek()) != "{" or not is_empty:
                    raise UnexpectedText
                self._is_whole = True
            else:
                key = yield from self._read_key()
                self._before = f"{'{' if is_empty else ', '}{quoted(key)}: "
            is_empty = False
            self._is_in_value = True
            bare = not self.is_bare or lexer.mark is None
            border = Border(self._tags.all, ")", "]", is_named=True, has_bare_strings=bare)
            yield from ValueText(lexer, PYTHON, self._write, border).read()
            self._is_in_value = False
        self._end(is_empty=is_empty)

    def _is_at_end(self) -> Reading[bool]:
        """Read the commas between two arguments, or the last parenthesis. A tag shows that the
        parenthesis is missing."""
        lexer = self._lexer
        skipped = _SEPARATORS if lexer.mark is not None else _AFTER_VALUE
        mark = yield from _peek(lexer, self._tags, skipped)
        if mark in "])" and (mark == ")" or lexer.mark is None):
            lexer.at += 1
            return True
        is_sure = lexer.mark is None and bool(self._tags.all)
        return is_sure and bool((yield from lexer.peek_text(*self._tags.all)))

    def _read_key(self) -> Reading[str]:
        """Read a key and the sign after it."""
        lexer = self._lexer
        while _UNFINISHED_KEY.fullmatch(lexer.text, lexer.at):
            yield
        key = _KEY.match(lexer.text, lexer.at)
        if key is None or self._is_whole:
            raise UnexpectedText
        lexer.at = key.end()
        return key[1]

    def _write(self, args: str) -> None:
        """Start the call with its first value: any text may hold names."""
        start_call(self._lexer, self._writer, self._name)
        self._writer.arguments(self._before + args)
        self._written.append(self._before + args)
        self._before = ""

    def _end(self, *, is_empty: bool) -> None:
        start_call(self._lexer, self._writer, self._name)
        if not self._is_whole:
            self._writer.arguments("{}" if is_empty else "}")
        self._writer.end_call()


def _family(tags: CallTags, *, is_bare: bool = False) -> ParserFamily:
    """`is_bare`: the models usually write the list without tags."""

    def opening(tools: Sequence[Tool]) -> Tag:
        return Tag(*tags.open, *(bare_opening(tool) for tool in tools if is_bare))

    def read(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
        return _read_calls(lexer, writer, opening, tags)

    return calls_family(opening, read, tags.all, dropped=tags.close)


def bare_opening(tool: Tool) -> str:
    """Return the beginning of a list without tags whose first call is of this tool."""
    return f"[{tool.name}("


# Llama 3.2 and 3.3, whose models write their tag for code before some lists, and Llama 4.
LLAMA3_PYTHONIC = _family(CallTags(("<|python_tag|>",)), is_bare=True)
LLAMA4_PYTHONIC = _family(CallTags(("<|python_start|>",), ("<|python_end|>",)), is_bare=True)
LFM2_TAGS = CallTags(("<|tool_call_start|>",), ("<|tool_call_end|>",))  # and those of LFM2.5
LFM2 = _family(LFM2_TAGS)
