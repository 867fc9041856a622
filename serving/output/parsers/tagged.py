"""Families that write tool calls between tags, one pair of tags for each argument:

    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>

Whether a value is text or JSON depends on the tool's schema. Text is passed on while it grows. A
value that may be JSON is passed on when it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag, UnexpectedText, end_of, literals
from vinery_serving.output.parsers.argument_types import (
    Kind,
    ParameterTypes,
    json_of,
    kind_of,
    quoted,
)
from vinery_serving.output.parsers.base import ParserFamily, calls_family, start_call
from vinery_serving.output.writer import EventWriter

_NAME: Final = re.compile(r"[^\s<>\"']+")
CDATA: Final = "<![CDATA["


@dataclass(frozen=True, slots=True)
class TagSyntax:
    """The tags of one family. `wrapper` and `wrapper_end` are around calls and may be missing
    in the output; "" is for families without them."""

    call_begin: str
    name_end: str
    key_begin: str
    key_end: str
    value_end: str
    call_end: str
    value_begin: str = ""
    wrapper: str = ""
    wrapper_end: str = ""
    # A value has lines of its own: one line break at each end is syntax.
    has_lines: bool = False
    # A value may be in a CDATA section, so that it can hold any tag.
    has_cdata: bool = False
    # The white space that models of this family write, for forced calls.
    after_wrapper: str = ""
    after_name: str = ""
    after_key: str = ""
    after_value: str = ""

    @property
    def opening(self) -> Tag:
        """What begins a call; the usual spelling first."""
        return Tag(*filter(None, (self.wrapper, self.call_begin)))


class TaggedCall:
    """Reads one call. `name_of` returns the tool's name for the name that the model wrote."""

    def __init__(
        self,
        lexer: Lexer,
        writer: EventWriter,
        syntax: TagSyntax,
        types: ParameterTypes,
        *,
        name_of: Callable[[str], str] = str,
    ) -> None:
        self._lexer = lexer
        self._writer = writer
        self._syntax = syntax
        self._types = types
        self._name_of = name_of
        self._name = ""
        self._has_arguments = False

    def read(self, opening: str) -> Reading[None]:
        """Read what follows `opening`, up to and with the wrapper's end. A call that has started
        can only end. Raises `UnexpectedText` for what is no call."""
        lexer, syntax = self._lexer, self._syntax
        if opening != syntax.call_begin and not (yield from lexer.take(syntax.call_begin)):
            raise UnexpectedText
        yield from self._read_name()
        marks = [*filter(None, (syntax.key_begin, syntax.call_end, syntax.wrapper_end))]
        mark = ""
        try:
            while (mark := (yield from lexer.take(*marks))) == syntax.key_begin:
                yield from self._read_argument()
            if not mark:
                raise UnexpectedText
            start_call(lexer, self._writer, self._name)
            self._writer.arguments("}" if self._has_arguments else "{}")
        except UnexpectedText:
            if lexer.mark is not None:
                raise
        self._writer.end_call()
        if mark == syntax.call_end and syntax.wrapper_end:
            yield from lexer.take(syntax.wrapper_end)

    def _read_name(self) -> Reading[None]:
        lexer, after_name = self._lexer, self._syntax.name_end
        while True:
            end = end_of(_NAME, lexer.text, lexer.at)
            after = lexer.text[end:]
            if after and end > lexer.at and after.startswith(after_name):
                break
            if after and not (end > lexer.at and after_name.startswith(after)):
                raise UnexpectedText
            yield
        self._name = self._name_of(lexer.text[lexer.at : end])
        lexer.at = end + len(after_name)

    def _read_argument(self) -> Reading[None]:
        """Any text may hold names. Only with a value it is sure to be a call."""
        lexer, syntax = self._lexer, self._syntax
        parts: list[str] = []
        yield from lexer.take_until(literals(syntax.key_end), parts.append)
        if syntax.value_begin and not (yield from lexer.take(syntax.value_begin)):
            raise UnexpectedText
        start_call(lexer, self._writer, self._name)
        key = "".join(parts)
        comma = ", " if self._has_arguments else "{"
        self._has_arguments = True
        prefix, types = f"{comma}{quoted(key)}: ", self._types.of(self._name, key)
        value = _Value(self._writer, prefix, types, has_lines=syntax.has_lines)
        yield from self._read_value(value)
        value.end()

    def _read_value(self, value: _Value) -> Reading[None]:
        lexer, syntax = self._lexer, self._syntax
        mark = "\n" if syntax.has_lines else ""
        if syntax.has_cdata:
            mark = CDATA
        while mark.startswith(rest := lexer.text[lexer.at :]) and rest != mark:
            yield
        if rest.startswith(mark):
            lexer.at += len(mark)
            if mark == CDATA:
                yield from lexer.take_until(literals("]]>"), value.feed)
                # Models write white space before the closing tag.
                yield from lexer.take_until(literals(syntax.value_end), lambda _: None)
                return
        yield from lexer.take_until(literals(syntax.value_end), value.feed)


def tagged_family(syntax: TagSyntax, *special_texts: str) -> ParserFamily:
    """Return a family that differs from others only in its tags."""

    def read(
        lexer: Lexer, writer: EventWriter, opening: str, tools: Sequence[Tool]
    ) -> Reading[None]:
        return TaggedCall(lexer, writer, syntax, ParameterTypes(tools)).read(opening)

    return calls_family(syntax.opening, read, special_texts)


class _Value:
    """Passes on the JSON text of one value, after `prefix`. Text is quoted at once; what may be
    JSON is passed on when it is complete. `has_lines`: see `TagSyntax`."""

    def __init__(
        self, writer: EventWriter, prefix: str, types: frozenset[str], *, has_lines: bool
    ) -> None:
        self._writer = writer
        self._is_text = kind_of(types) is Kind.TEXT
        self._prefix = f'{prefix}"' if self._is_text else prefix
        self._types = types
        self._has_lines = has_lines
        self._line_break = ""  # held back: it is syntax at the end
        self._held = ""

    def feed(self, text: str) -> None:
        if self._has_lines:
            text = self._line_break + text
            self._line_break = "\n" if text.endswith("\n") else ""
            text = text.removesuffix("\n")
        if not self._is_text:
            self._held += text
        elif text:
            self._writer.arguments(self._prefix + quoted(text)[1:-1])
            self._prefix = ""

    def end(self) -> None:
        rest = '"' if self._is_text else json_of(self._held, self._types)
        self._writer.arguments(self._prefix + rest)
