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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import (
    EndOfText,
    Lexer,
    Reading,
    Tag,
    UnexpectedText,
    literals,
    match_end,
)
from vinery_serving.output.parsers.argument_types import (
    Kind,
    ParameterTypes,
    argument_json,
    value_kind,
)
from vinery_serving.output.parsers.base import ParserFamily, calls_family, start_call
from vinery_serving.output.parsers.respelling import inside, quoted
from vinery_serving.output.writer import EventWriter, known_name

_NAME: Final = re.compile(r"[^\s<>\"']{1,256}")
CDATA: Final = "<![CDATA["
# The most text in which the next closing tag, or the end of a key, is looked for.
_MAX_HELD: Final = 2048
_AROUND_KEY: Final = " \t\r\n\"'"
_NO_KEY: Final = re.compile(r"[<\n]")
# A key that ends like a JSON key, up to the value.
_DAMAGED_HEAD: Final = re.compile(r"\s*[\"']?([^\s\"':=<>]{1,256})[\"']?\s*[:=]\s*")


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
    has_lines: bool = False  # a value is on separate lines: a line break at each end is syntax
    # The same, but only some values have such lines.
    may_have_lines: bool = False
    has_cdata: bool = False  # a value may be in a CDATA section, so that it can hold any tag
    # The white space that models of this family write, for forced calls.
    after_wrapper: str = ""
    after_name: str = ""
    after_key: str = ""
    after_value: str = ""

    @property
    def value_ends(self) -> tuple[str, ...]:
        """The tags that may end a value, the usual tag first."""
        return self.value_end, self.key_begin, self.call_end

    @property
    def opening(self) -> Tag:
        return Tag(*filter(None, (self.wrapper, self.call_begin)))


@dataclass(slots=True)
class TaggedCall:
    _lexer: Lexer
    _writer: EventWriter
    _syntax: TagSyntax
    _types: ParameterTypes
    _name: str = ""
    _given: set[str] = field(default_factory=set)  # the keys so far
    _is_in_value: bool = False

    def read(self, opening: str) -> Reading[None]:
        """Read the text after `opening`, up to and with the wrapper's end. A call that has started
        can only end. Raises `UnexpectedText` for text that is no call."""
        lexer, syntax = self._lexer, self._syntax
        if opening != syntax.call_begin and not (yield from lexer.take(syntax.call_begin)):
            raise UnexpectedText
        yield from self._read_name()
        mark = ""
        try:
            mark = yield from self._read_arguments()
        except UnexpectedText:
            if lexer.mark is not None:
                raise
        except EndOfText as end:
            if lexer.mark is None and end.is_closed and not self._is_in_value:
                self._end()
            raise
        self._end()
        if mark == syntax.call_end:
            with lexer.after_call():
                while (yield from lexer.take(*filter(None, (syntax.call_end, syntax.wrapper_end)))):
                    lexer.mark = lexer.at

    def _read_arguments(self) -> Reading[str]:
        """Read all arguments and the closing tag. The tag may be missing before the next call's
        opening, which is not read. Returns the last tag; "" without one."""
        lexer, syntax = self._lexer, self._syntax
        marks = [*filter(None, (syntax.key_begin, syntax.call_end, syntax.wrapper_end))]
        while (mark := (yield from lexer.take(*marks))) == syntax.key_begin:
            yield from self._read_argument()
        is_sure = lexer.mark is None
        if not (mark or (is_sure and (yield from lexer.peek_text(*syntax.opening.strings)))):
            raise UnexpectedText
        start_call(lexer, self._writer, self._name)
        return mark

    def _end(self) -> None:
        self._writer.arguments("}" if self._given else "{}")
        self._writer.end_call()

    def _read_name(self) -> Reading[None]:
        lexer, after_name = self._lexer, self._syntax.name_end
        while True:
            end = match_end(_NAME, lexer.text, lexer.at)
            after = lexer.text[end:]
            if after and end > lexer.at and after.startswith(after_name):
                break
            if after and not (end > lexer.at and after_name.startswith(after)):
                raise UnexpectedText
            yield
        self._name = known_name(lexer.text[lexer.at : end], self._types.tools)
        lexer.at = end + len(after_name)

    def _read_key(self) -> Reading[str]:
        """Read a key and the syntax up to the value. Returns "" for an argument without a key,
        which is dropped. A key has no tag and no line break."""
        lexer, syntax = self._lexer, self._syntax
        found = yield from lexer.find(literals(syntax.key_end, *syntax.value_ends), _MAX_HELD)
        if found is None:
            raise UnexpectedText
        start, end = (lexer.at + index for index in found)
        text, tag = lexer.text[lexer.at : start], lexer.text[start:end]
        if tag == syntax.value_end and (head := _DAMAGED_HEAD.match(text)):
            lexer.at += head.end() if head[1] in self._missing_names else end - lexer.at
            return head[1] if head[1] in self._missing_names else ""
        lexer.at = end if tag in (syntax.key_end, syntax.value_end) else start
        if tag != syntax.key_end:
            return ""
        if syntax.value_begin and not (yield from lexer.take(syntax.value_begin)):
            raise UnexpectedText
        key = text.strip(_AROUND_KEY)
        if key and not _NO_KEY.search(key):
            return key
        found_end = yield from lexer.take_until(literals(*syntax.value_ends), lambda _: None)
        lexer.at -= len(found_end) if found_end != syntax.value_end else 0
        return ""

    def _read_argument(self) -> Reading[None]:
        """Start the call only with a value: any text may hold names."""
        lexer = self._lexer
        key = yield from self._read_key()
        if not key:
            return
        start_call(lexer, self._writer, self._name)
        comma = ", " if self._given else "{"
        prefix, types = f"{comma}{quoted(key)}: ", self._types.of(self._name, key)
        self._given.add(key)
        value = _Value(self._writer, prefix, types)
        self._is_in_value = True
        try:
            yield from self._read_value(value)
        except EndOfText as end:
            if end.is_closed:
                value.end()
                self._is_in_value = False
            raise
        self._is_in_value = False
        value.end()

    def _read_value(self, value: _Value) -> Reading[None]:
        lexer, syntax = self._lexer, self._syntax
        if syntax.has_lines or syntax.may_have_lines:
            value.has_lines = True
            yield from self._take_exactly("\n")
        if syntax.has_cdata and (yield from self._take_exactly(CDATA)):
            value.has_lines = False
            yield from lexer.take_until(literals("]]>"), value.feed)
            # Models write white space before the closing tag.
            yield from lexer.take_until(literals(syntax.value_end), lambda _: None)
            return
        ends = literals(*syntax.value_ends)
        while (found := (yield from lexer.take_until(ends, value.feed))) != syntax.value_end:
            lexer.at -= len(found)
            if (yield from self._is_end_missing(found)):
                return
            lexer.at += len(found)
            value.feed(found)
        if (later := (yield from self._find_later_end())) is not None:
            start, end = later
            value.feed(found + lexer.text[lexer.at : lexer.at + start])
            lexer.at += end

    def _find_later_end(self) -> Reading[tuple[int, int] | None]:
        """Find a later closing tag that ends the value. None: the tag that was read ends the value.
        A later tag does if other text follows the first tag, and an argument, the end of the call
        or of the text follows the later tag."""
        lexer, syntax = self._lexer, self._syntax
        after = 0
        found: tuple[int, int] | None = None
        following = (syntax.key_begin, syntax.call_end, syntax.wrapper_end, *syntax.opening.strings)
        try:
            while not (yield from lexer.peek_text(*filter(None, following), after=after)):
                found = None
                found = yield from lexer.find(literals(*syntax.value_ends), _MAX_HELD, after)
                if found is None or not lexer.text.startswith(
                    syntax.value_end, lexer.at + found[0]
                ):
                    return None
                after = found[1]
        except EndOfText:
            pass
        return found

    def _take_exactly(self, mark: str) -> Reading[bool]:
        lexer = self._lexer
        while mark.startswith(rest := lexer.text[lexer.at : lexer.at + len(mark)]) and rest != mark:
            yield
        lexer.at += len(mark) if rest == mark else 0
        return rest == mark

    def _is_end_missing(self, tag: str) -> Reading[bool]:
        """Whether a tag in a value shows that the value's closing tag is missing: it begins another
        argument, or ends the call, and a call, the wrapper's end or nothing follows. Otherwise the
        tag is text."""
        syntax = self._syntax
        if tag == syntax.key_begin:
            following = [f"{tag}{name}{syntax.key_end}" for name in self._missing_names]
        else:
            following = [*filter(None, (*syntax.opening.strings, syntax.wrapper_end))]
        after = 0 if tag == syntax.key_begin else len(tag)
        try:
            found = following and (yield from self._lexer.peek_text(*following, after=after))
            return bool(found)
        except EndOfText as end:
            if end.is_closed and tag == syntax.call_end:
                return True
            raise

    @property
    def _missing_names(self) -> frozenset[str]:
        return self._types.names(self._name) - self._given


def tagged_family(syntax: TagSyntax, *special_texts: str) -> ParserFamily:
    def read(
        lexer: Lexer, writer: EventWriter, opening: str, tools: Sequence[Tool]
    ) -> Reading[None]:
        return TaggedCall(lexer, writer, syntax, ParameterTypes(tools)).read(opening)

    return calls_family(syntax.opening, read, special_texts)


class _Value:
    """Passes on the JSON text of one value, after `prefix`. Text is quoted at once; possible JSON
    is passed on when complete. `has_lines`: a line break at its end is syntax."""

    def __init__(self, writer: EventWriter, prefix: str, types: frozenset[str]) -> None:
        self._writer = writer
        self._is_text = value_kind(types) is Kind.TEXT
        self._prefix = f'{prefix}"' if self._is_text else prefix
        self._types = types
        self.has_lines = False
        self._line_break = ""  # held back: it is syntax at the end
        self._held: list[str] = []

    def feed(self, text: str) -> None:
        if self.has_lines:
            text = self._line_break + text
            self._line_break = "\n" if text.endswith("\n") else ""
            text = text.removesuffix("\n")
        if not self._is_text:
            self._held.append(text)
        elif text:
            self._writer.arguments(self._prefix + inside(text))
            self._prefix = ""

    def end(self) -> None:
        rest = '"' if self._is_text else argument_json("".join(self._held), self._types)
        self._writer.arguments(self._prefix + rest)


# Qwen3-Coder, Qwen3.5 and others that learned from them. The outer tags may be missing: smaller
# models forget the first tag.
#
#     <tool_call>
#     <function=get_weather>
#     <parameter=city>
#     Paris
#     </parameter>
#     </function>
#     </tool_call>
QWEN3CODER_TAGS: Final = TagSyntax(
    wrapper="<tool_call>",
    after_wrapper="\n",
    call_begin="<function=",
    name_end=">",
    after_name="\n",
    key_begin="<parameter=",
    key_end=">",
    value_end="</parameter>",
    after_value="\n",
    call_end="</function>",
    wrapper_end="</tool_call>",
    has_lines=True,
)
QWEN3CODER: Final = tagged_family(
    QWEN3CODER_TAGS, QWEN3CODER_TAGS.wrapper, QWEN3CODER_TAGS.wrapper_end
)

# GLM-4.5 and later. GLM-4.7 writes the same without line breaks.
#
#     <tool_call>get_weather
#     <arg_key>city</arg_key>
#     <arg_value>Paris</arg_value>
#     </tool_call>
GLM4_TAGS: Final = TagSyntax(
    call_begin="<tool_call>",
    name_end="",
    after_name="\n",
    key_begin="<arg_key>",
    key_end="</arg_key>",
    after_key="\n",
    value_begin="<arg_value>",
    value_end="</arg_value>",
    after_value="\n",
    call_end="</tool_call>",
)
GLM4: Final = tagged_family(
    GLM4_TAGS,
    GLM4_TAGS.call_begin,
    GLM4_TAGS.key_begin,
    GLM4_TAGS.key_end,
    GLM4_TAGS.value_begin,
    GLM4_TAGS.value_end,
    GLM4_TAGS.call_end,
)

# MiniCPM5. A value that holds tags or line breaks may be in a CDATA section. The model's tokens
# are halves of the tags.
#
#     <function name="get_weather"><param name="city">Paris</param></function>
MINICPM5_TAGS: Final = TagSyntax(
    call_begin='<function name="',
    name_end='">',
    key_begin='<param name="',
    key_end='">',
    value_end="</param>",
    call_end="</function>",
    may_have_lines=True,
    has_cdata=True,
)
MINICPM5: Final = tagged_family(MINICPM5_TAGS, "<function", "</function>", "<param", "</param>")
