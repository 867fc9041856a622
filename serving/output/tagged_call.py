"""A tool call that a model writes between tags, one pair of tags for each argument:

    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>

What a value is, text or JSON, depends on the tool's schema. Text is told while it grows;
a value that may be JSON when it is complete, because only then it is clear what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from serving.output.call_reader import CallState
from serving.output.lexer import Lexer, Tag
from serving.output.parse_events import CallArgs, CallEnded, CallStarted, Piece
from serving.output.typed import Kind, ParameterTypes, json_of, kind_of, quoted

_NAME: Final = re.compile(r"[^\s<>\"']+")
CDATA: Final = "<![CDATA["
_CDATA_END: Final = "]]>"


@dataclass(frozen=True, slots=True)
class TagSyntax:
    """The tags of one family. `wrapper` and `wrapper_end` stand around calls and may be
    missing; "" where a family has none."""

    call_begin: str
    name_end: str
    key_begin: str
    key_end: str
    value_end: str
    call_end: str
    value_begin: str = ""
    wrapper: str = ""
    wrapper_end: str = ""
    # A value stands on lines of its own: one line break at each end is syntax.
    has_lines: bool = False
    # A value may stand in a CDATA section, so that it can hold any tag.
    has_cdata: bool = False
    # The blanks that models of this family write, for when a call is forced.
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
        """What may stand next inside a call."""
        return (self.key_begin, self.call_end, self.wrapper_end or self.call_end)


@cache
def _tag(text: str) -> Tag:
    return Tag(text)


class TaggedCall:
    """Reads one call after `opening`, up to and with the wrapper's end."""

    def __init__(
        self,
        syntax: TagSyntax,
        types: ParameterTypes,
        opening: str,
        *,
        name_of: Callable[[str], str] = str,
    ) -> None:
        self.state = CallState.OPEN
        self.rest = ""
        self.untold = opening
        self._syntax = syntax
        self._types = types
        self._name_of = name_of
        self._lexer = Lexer()
        is_named = opening == syntax.call_begin
        self._step: Callable[[], None] = self._in_name if is_named else self._at_call
        self._pieces: list[Piece] = []
        self._name = ""
        self._is_told = False
        self._key = ""
        self._has_arguments = False
        self._value = _Value(frozenset())

    def feed(self, text: str) -> list[Piece]:
        self._lexer.feed(text)
        self.untold += text
        while self.state is CallState.OPEN:
            step = self._step
            step()
            if self._step == step:
                break
        if self.state is not CallState.OPEN:
            self.rest = self._lexer.take_all()
            self.untold = self.untold[: len(self.untold) - len(self.rest)]
        if self._is_told:
            self.untold = ""
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> list[Piece]:
        return []

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

        Only here it is sure to be a call: names alone may stand in any text.
        """
        self._tell_name()
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
        """Up to the closing tag nothing but white space should come, and nothing counts."""
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
        if told := self._value.feed(text):
            self._tell_argument(told)

    def _end_value(self) -> None:
        self._tell_argument(self._value.finish())
        self._step = self._at_argument

    def _tell_name(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._pieces.append(CallStarted(self._name))

    def _tell_argument(self, text: str) -> None:
        if not self._value.is_begun:
            self._value.is_begun = True
            comma = ", " if self._has_arguments else "{"
            self._has_arguments = True
            text = f"{comma}{quoted(self._key)}: {text}"
        if text:
            self._pieces.append(CallArgs(text))

    def _is_next(self, mark: str) -> bool:
        return bool(self._lexer.take_space_and(_tag(mark)))

    def _end_call(self) -> None:
        self._tell_name()
        self._pieces += [CallArgs("}" if self._has_arguments else "{}"), CallEnded()]

    def _break(self) -> None:
        """No call. One that was told already can only end here."""
        if self._is_told:
            self._pieces.append(CallEnded())
        self.state = CallState.ENDED if self._is_told else CallState.BROKEN


class _Value:
    """One value. Text is passed on at once, in quotes."""

    def __init__(self, types: frozenset[str]) -> None:
        self.is_begun = False
        self._types = types
        self._is_text = bool(types) and kind_of(types) is Kind.TEXT
        self._held = ""
        self._is_quoted = False

    def feed(self, text: str) -> str:
        """More JSON text."""
        if not self._is_text:
            self._held += text
            return ""
        return self._quote() + quoted(text)[1:-1] if text else ""

    def finish(self) -> str:
        """The rest of the JSON text."""
        return self._quote() + '"' if self._is_text else json_of(self._held, self._types)

    def _quote(self) -> str:
        begin, self._is_quoted = "" if self._is_quoted else '"', True
        return begin
