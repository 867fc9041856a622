"""Tool calls that a model writes as JSON objects, after one opening tag or none:

    <tool_call>{"name": ..., "arguments": ...}</tool_call>
    functools[{"name": ..., "arguments": ...}, {"name": ..., "arguments": ...}]
    {"name": ..., "parameters": ...}; {"name": ..., "parameters": ...}
    get_weather[ARGS]{"city": "Paris"}

An opening is followed by one object or several with commas, semicolons or white space between
them, with or without an array around them. Models forget the closing bracket and the closing
tag, so both may be missing. The last form has a head; a `Section` holds several of them.
"""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.json_text import read_key, read_unquoted, read_value, read_word, unquote
from vinery_serving.output.lexer import EndOfText, Lexer, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.base import ParserFamily, calls_family, start_call
from vinery_serving.output.writer import EventWriter

_SEPARATORS: Final = re.compile(r"[ \t\r\n,;]*")
_ARGUMENT_KEYS: Final = frozenset(("arguments", "parameters"))
_CALL_KEYS: Final = _ARGUMENT_KEYS | {"name", "function", "type", "id"}
# A head without a brace for longer than this is no head.
_MAX_HEAD_CHARS: Final = 512


def read_json_calls(
    lexer: Lexer,
    writer: EventWriter,
    *,
    is_array: bool = False,
    close: Tag | None = None,
    only: Container[str] | None = None,
) -> Reading[None]:
    """Read the calls after an opening, up to and with `close`.

    `is_array`: the opening has begun the array. `only`: see `_JsonCall`. Raises `UnexpectedText`
    for what is no call, unless a call has started.
    """
    first = yield from lexer.peek()
    if first == "[" and not is_array:
        is_array = True
        lexer.at += 1
        first = yield from lexer.peek()
    if first != "{":
        raise UnexpectedText
    while first == "{":
        yield from _JsonCall(lexer, writer, only).read()
        with lexer.after_call():
            first = yield from lexer.peek(_SEPARATORS)
            if first != "{":
                lexer.at = lexer.mark or 0
                if is_array:
                    yield from lexer.take("]")
                if close is not None:
                    yield from lexer.take(*close.strings)


def read_bare_calls(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
    """Read calls without a tag. Only calls of these tools are calls. The opening is read again,
    as the beginning of the first call."""
    lexer.at = lexer.mark or 0
    return read_json_calls(lexer, writer, only=frozenset(tool.name for tool in tools))


class _JsonCall:
    """Reads one call as an object with a name and arguments.

    The keys may come in any order, and the arguments may be an object or a quoted string of
    one. The name may be under `function`, or both may be in an object under `function`. A call
    is sure when name and arguments have begun.

    `only`: the names that make an object a call. Then it must also have arguments, and only
    keys of calls. None: any name does, and other keys are ignored.
    """

    def __init__(self, lexer: Lexer, writer: EventWriter, only: Container[str] | None) -> None:
        self._lexer = lexer
        self._writer = writer
        self._only = only
        self._name: str | None = None
        self._has_arguments = False
        self._is_in_arguments = False
        self._early_args = ""  # before the name
        self._is_empty = True  # the arguments have no text

    def read(self) -> Reading[None]:
        """Read from the opening brace to the closing one. A call that has started can only
        end. Raises `UnexpectedText` for what is no call."""
        try:
            yield from self._read_members()
        except UnexpectedText:
            if self._lexer.mark is not None:
                raise
        except EndOfText:
            if self._lexer.mark is None and not self._is_in_arguments:
                self._end()
            raise
        self._end()

    def _read_members(self) -> Reading[None]:
        lexer, allowed = self._lexer, None if self._only is None else _CALL_KEYS
        lexer.at += 1
        depth = 1  # 2 inside the value of `function`
        while depth:
            key = yield from read_key(lexer, allowed)
            is_unnamed = self._name is None
            if key is None:
                depth -= 1
            elif key == "function" and is_unnamed and depth == 1 and lexer.text[lexer.at] == "{":
                lexer.at += 1
                depth = 2
            elif is_unnamed and (key == "name" or (key == "function" and depth == 1)):
                yield from self._read_name()
            elif key in _ARGUMENT_KEYS and not self._has_arguments:
                self._is_in_arguments = True
                yield from self._read_arguments()
                self._is_in_arguments = False
            else:
                yield from read_word(lexer)
        if self._name is None or (self._only is not None and not self._has_arguments):
            raise UnexpectedText

    def _read_name(self) -> Reading[None]:
        word = yield from read_word(self._lexer)
        name = unquote(word[1:-1]) if word.startswith('"') else ""
        if not name or (self._only is not None and name not in self._only):
            raise UnexpectedText
        self._name = name
        if self._has_arguments:
            self._write("")

    def _read_arguments(self) -> Reading[None]:
        self._has_arguments = True
        self._write("")
        if self._lexer.text[self._lexer.at] in '"{[':
            yield from read_unquoted(self._lexer, self._write)
            return
        word = yield from read_word(self._lexer)
        if word != "null":
            self._write(word)

    def _write(self, args: str) -> None:
        self._is_empty = self._is_empty and not args
        if self._name is None:
            self._early_args += args
            return
        start_call(self._lexer, self._writer, self._name)
        self._writer.arguments(self._early_args + args)
        self._early_args = ""

    def _end(self) -> None:
        if self._is_empty:
            self._write("{}")
        self._writer.end_call()


def read_headed_call(lexer: Lexer, writer: EventWriter, head: re.Pattern[str]) -> Reading[None]:
    """Read one call whose name is in a head before a JSON object.

    `head` matches all text between the opening and the first brace; its group `name` is the name
    of the tool. Raises `UnexpectedText` for a text that is no head, and does not read it: it may
    hold an opening.
    """
    while True:
        brace = lexer.text.find("{", lexer.at)
        if (len(lexer.text) if brace < 0 else brace) - lexer.at > _MAX_HEAD_CHARS:
            raise UnexpectedText
        if brace >= 0:
            break
        yield
    match = head.fullmatch(lexer.text, lexer.at, brace)
    if match is None:
        raise UnexpectedText
    lexer.at = brace
    start_call(lexer, writer, match["name"])
    yield from read_value(lexer, writer.arguments)
    writer.end_call()


@dataclass(frozen=True, slots=True)
class Section:
    """The tags around all calls and around each call, where a call is a head and a JSON object.

    `head`: see `read_headed_call`. `fence`: what may follow the object. The tags around all calls
    may be missing in the output.
    """

    begin: Tag
    end: Tag
    call_begin: Tag
    call_end: Tag
    head: re.Pattern[str]
    fence: str = ""

    def family(self, *special_texts: str) -> ParserFamily:
        tags = self.begin, self.end, self.call_begin, self.call_end
        opening = Tag(self.begin.text, self.call_begin.text)
        return calls_family(opening, self._read, (*(tag.text for tag in tags), *special_texts))

    def _read(
        self, lexer: Lexer, writer: EventWriter, opening: str, _: Sequence[Tool]
    ) -> Reading[None]:
        """Read what follows the first opening tag, up to and with the last tag."""
        call_begin = self.call_begin.text
        if opening != call_begin and not (yield from lexer.take(call_begin)):
            raise UnexpectedText
        is_call = True
        while is_call:
            yield from read_headed_call(lexer, writer, self.head)
            with lexer.after_call():
                if self.fence:
                    yield from lexer.take(self.fence)
                yield from lexer.take(self.call_end.text)
                lexer.mark = lexer.at
                is_call = bool((yield from lexer.take(call_begin)))
                if not is_call:
                    yield from lexer.take(self.end.text)
