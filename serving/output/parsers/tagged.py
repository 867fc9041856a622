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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from serving.output.lexer import Tag
from serving.output.parser import EventSink
from serving.output.parsers.argument_types import Kind, ParameterTypes, json_of, kind_of, quoted
from serving.output.parsers.base import CallReader, CallsFamily, CallState

_NAME: Final = re.compile(r"[^\s<>\"']+")
CDATA: Final = "<![CDATA["
_CDATA_END: Final = "]]>"


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

    @property
    def inner_marks(self) -> tuple[str, ...]:
        """What may come next inside a call."""
        return (self.key_begin, self.call_end, self.wrapper_end or self.call_end)


@cache
def _tag(text: str) -> Tag:
    return Tag(text)


class TaggedCall(CallReader):
    """Reads one call after `opening`, up to and with the wrapper's end. `name_of` returns the
    tool's name for the name that the model wrote."""

    def __init__(
        self,
        sink: EventSink,
        syntax: TagSyntax,
        types: ParameterTypes,
        opening: str,
        *,
        name_of: Callable[[str], str] = str,
    ) -> None:
        super().__init__(sink, opening)
        self._syntax = syntax
        self._types = types
        self._name_of = name_of
        is_named = opening == syntax.call_begin
        self._step = self._in_name if is_named else self._at_call
        self._name = ""
        self._is_started = False
        self._key = ""
        self._has_arguments = False
        self._value = _Value(frozenset())

    def feed(self, text: str) -> None:
        self._lexer.feed(text)
        self.pending += text
        self._run()
        if self.state is not CallState.OPEN:
            self.rest = self._lexer.take_all()
            self.pending = self.pending[: len(self.pending) - len(self.rest)]
        if self._is_started:
            self.pending = ""

    def _at_call(self) -> None:
        match self._lexer.take_space_and(_tag(self._syntax.call_begin)):
            case True:
                self._step = self._in_name
            case False:
                self.state = CallState.BROKEN

    def _in_name(self) -> None:
        text, end = self._lexer.text, self._syntax.name_end
        name = _NAME.match(text)
        after = text[name.end() :] if name else text
        if after and name and after.startswith(end):
            self._name = self._name_of(name[0])
            self._lexer.text = after.removeprefix(end)
            self._step = self._at_argument
        elif after and not (name and end.startswith(after)):
            self.state = CallState.BROKEN

    def _at_argument(self) -> None:
        syntax = self._syntax
        if self._is_next(syntax.key_begin):
            self._key = ""
            self._step = self._in_key
        elif self._is_next(syntax.call_end):
            self._end_call()
            self._step = self._at_wrapper_end
        elif syntax.wrapper_end and self._is_next(syntax.wrapper_end):
            self._end_call()
            self.state = CallState.ENDED
        elif not any(mark.startswith(self._lexer.text.lstrip()) for mark in syntax.inner_marks):
            self._break()

    def _at_wrapper_end(self) -> None:
        end = self._syntax.wrapper_end
        if not end or self._lexer.take_space_and(_tag(end)) is not None:
            self.state = CallState.ENDED

    def _in_key(self) -> None:
        key, is_complete = self._lexer.take_until(_tag(self._syntax.key_end))
        self._key += key
        if is_complete:
            self._value = _Value(self._types.of(self._name, self._key))
            self._step = self._before_value if self._syntax.value_begin else self._at_value

    def _before_value(self) -> None:
        match self._lexer.take_space_and(_tag(self._syntax.value_begin)):
            case True:
                self._step = self._at_value
            case False:
                self._break()

    def _at_value(self) -> None:
        """The value's first character: a line break or the mark of a section is syntax.

        Any text may hold names. Only with a value it is sure to be a call.
        """
        self._start_call()
        text = self._lexer.text
        if self._syntax.has_cdata and text.startswith(CDATA):
            self._lexer.text = text.removeprefix(CDATA)
            self._step = self._in_section
        elif self._syntax.has_cdata and CDATA.startswith(text):
            return
        elif text:
            if self._syntax.has_lines:
                self._lexer.text = text.removeprefix("\n")
            self._step = self._in_value

    def _in_section(self) -> None:
        text, is_complete = self._lexer.take_until(_tag(_CDATA_END))
        self._grow(text)
        if is_complete:
            self._step = self._after_section

    def _after_section(self) -> None:
        """Drop all text up to the closing tag. Models write white space there."""
        _, is_complete = self._lexer.take_until(_tag(self._syntax.value_end))
        if is_complete:
            self._end_value()

    def _in_value(self) -> None:
        text, is_complete = self._lexer.take_until(_tag(self._syntax.value_end))
        if is_complete and self._syntax.has_lines:
            text = text.removesuffix("\n")
        elif self._syntax.has_lines and text.endswith("\n"):
            text = text.removesuffix("\n")
            self._lexer.text = "\n" + self._lexer.text
        self._grow(text)
        if is_complete:
            self._end_value()

    def _grow(self, text: str) -> None:
        if json_text := self._value.feed(text):
            self._write(json_text)

    def _end_value(self) -> None:
        self._write(self._value.finish())
        self._step = self._at_argument

    def _start_call(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._sink.start_call(self._name)

    def _write(self, text: str) -> None:
        if not self._value.is_begun:
            self._value.is_begun = True
            comma = ", " if self._has_arguments else "{"
            self._has_arguments = True
            text = f"{comma}{quoted(self._key)}: {text}"
        self._sink.arguments(text)

    def _is_next(self, mark: str) -> bool:
        return bool(self._lexer.take_space_and(_tag(mark)))

    def _end_call(self) -> None:
        self._start_call()
        self._sink.arguments("}" if self._has_arguments else "{}")
        self._sink.end_call()

    def _break(self) -> None:
        """A call that has started can only end here."""
        if self._is_started:
            self._sink.end_call()
        self.state = CallState.ENDED if self._is_started else CallState.BROKEN


def tagged_family(syntax: TagSyntax, *special_texts: str) -> CallsFamily:
    """Return a family that differs from others only in its tags."""
    return CallsFamily(
        syntax.opening,
        lambda sink, opening, tools: TaggedCall(sink, syntax, ParameterTypes(tools), opening),
        special_texts=frozenset(special_texts),
    )


class _Value:
    """Makes the JSON text of one value. Text is quoted at once."""

    def __init__(self, types: frozenset[str]) -> None:
        self.is_begun = False
        self._types = types
        self._is_text = bool(types) and kind_of(types) is Kind.TEXT
        self._held = ""
        self._is_quoted = False

    def feed(self, text: str) -> str:
        """Return more JSON text."""
        if not self._is_text:
            self._held += text
            return ""
        return self._quote() + quoted(text)[1:-1] if text else ""

    def finish(self) -> str:
        """Return the rest of the JSON text."""
        return self._quote() + '"' if self._is_text else json_of(self._held, self._types)

    def _quote(self) -> str:
        begin, self._is_quoted = "" if self._is_quoted else '"', True
        return begin
