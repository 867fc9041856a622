"""Tool calls that a model writes as JSON objects, after one opening tag or none:

    <tool_call>{"name": ..., "arguments": ...}</tool_call>
    functools[{"name": ..., "arguments": ...}, {"name": ..., "arguments": ...}]
    {"name": ..., "parameters": ...}; {"name": ..., "parameters": ...}
    get_weather[ARGS]{"city": "Paris"}

After an opening come one or more objects, separated by commas, semicolons or white space, with or
without an array around them. Models forget the closing bracket and the closing tag, so both may be
missing. The last form has a head; a `Section` holds several such calls.
"""

import json
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import (
    EndOfText,
    Lexer,
    Literals,
    Reading,
    Tag,
    UnexpectedText,
    literals,
)
from vinery_serving.output.parsers.base import ParserFamily, calls_family, start_call
from vinery_serving.output.parsers.value_text import JsonText
from vinery_serving.output.writer import EventWriter, sendable

_SEPARATORS: Final = re.compile(r"[\s,;]*")
# Models miscount brackets and quotes at the end of a call.
_RESIDUE: Final = re.compile(r"[\s,;}\])\"'`]*")
_BRACKETS: Final = re.compile(r"(?:\s*[}\])])*")
# The key of a call, which may have lost quotes.
_KEY: Final = re.compile(r"""["']?([\w.-]{1,64})["']?\s{0,64}[:=]""")
_UNFINISHED_KEY: Final = re.compile(r"""["']?[\w.-]{0,64}["']?\s{0,64}""")
_ARGUMENT_KEYS: Final = frozenset(("arguments", "parameters"))
_NAME_KEYS: Final = frozenset(("name", "tool_name"))
_CALL_KEYS: Final = _ARGUMENT_KEYS | _NAME_KEYS | {"function", "type", "id", "tool_call_id"}
_MAX_HEAD_CHARS: Final = 512  # a head without a brace for longer than this is no head


@dataclass(frozen=True, slots=True)
class CallTags:
    open: tuple[str, ...] = ()
    close: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.open, *self.close)


NO_TAGS: Final = CallTags()


def json_family(opening: Tag, closing: Tag | None = None) -> ParserFamily:
    """Return a family that differs from others only in its tags."""
    tags = CallTags(opening.strings, closing.strings if closing else ())
    return calls_family(
        opening, lambda lexer, writer, *_: read_json_calls(lexer, writer, tags), tags.all
    )


def read_json_calls(
    lexer: Lexer,
    writer: EventWriter,
    tags: CallTags = NO_TAGS,
    *,
    only: Container[str] | None = None,
    is_array: bool = False,
) -> Reading[None]:
    """Read the calls after an opening, up to and with the closing tag. `is_array`: the opening has
    begun the array. `only`: see `_JsonCall`. Raises `UnexpectedText` for text that is no call,
    unless a call has started."""
    first = yield from lexer.peek()
    if first == "[" and not is_array:
        lexer.at += 1
        first = yield from lexer.peek()
    if first != "{":
        raise UnexpectedText
    while first == "{":
        yield from _JsonCall(lexer, writer, tags, only).read()
        with lexer.after_call():
            first = yield from read_residue(lexer, tags, next_call="{")


def read_residue(lexer: Lexer, tags: CallTags, next_call: str = "\0") -> Reading[str]:
    """Read the syntax after the end of a call: surplus brackets and quotes, and closing tags.
    Returns the next character if it is `next_call`, else "". The text is marked from here on."""
    following = yield from lexer.peek(_RESIDUE)
    if following != next_call and not (tags.all and (yield from lexer.peek_text(*tags.all))):
        lexer.at = lexer.mark or 0
        yield from lexer.take_run(_BRACKETS)
    while tags.close and (yield from lexer.take(*tags.close)):
        following = ""
    return following if following == next_call else ""


def read_broken_call(
    lexer: Lexer, writer: EventWriter, tags: CallTags, *, is_in_arguments: bool
) -> Reading[None]:
    """Read the rest of a call that has started, up to the next tag. In arguments the rest is passed
    on unchanged, so that nothing is lost; elsewhere it is dropped. A family without closing tags
    does not show the end of a broken call; there the rest is text."""
    write = writer.arguments if is_in_arguments else _drop
    if tags.close:
        try:
            found = yield from lexer.take_until(literals(*tags.all), write)
            lexer.at -= len(found)
        except EndOfText as end:
            write(lexer.take_all())
            if end.is_closed:
                writer.end_call()
            raise


def _drop(_: str) -> None:
    pass


def read_bare_calls(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
    """Read calls without a tag. Only calls of these tools are calls. The opening is read again,
    as the beginning of the first call."""
    lexer.at = lexer.mark or 0
    return read_json_calls(lexer, writer, only=frozenset(tool.name for tool in tools))


@dataclass(slots=True)
class _JsonCall:
    """Reads one call as an object with a name and arguments.

    The keys may come in any order, and the arguments may be an object, or an object in a quoted
    string. The name may be under `function`, or both may be in an object under `function`. A call
    is sure when name and arguments have begun.

    `only`: the names that make an object a call. Then the object must have arguments, and only keys
    of calls. None: any name is accepted, and other keys are ignored.
    """

    _lexer: Lexer
    _writer: EventWriter
    _tags: CallTags
    _only: Container[str] | None
    _name: str | None = None
    _has_arguments: bool = False
    _is_in_arguments: bool = False
    _early_args: list[str] = field(default_factory=list)  # before the name
    _is_empty: bool = True  # the arguments have no text

    def read(self) -> Reading[None]:
        """Read from the opening to the closing brace. A call that has started can only end. Raises
        `UnexpectedText` for text that is no call."""
        lexer = self._lexer
        try:
            yield from self._read_members()
        except UnexpectedText:
            if lexer.mark is not None:
                raise
            if not lexer.text.startswith("{", lexer.at):
                yield from read_broken_call(
                    lexer, self._writer, self._tags, is_in_arguments=self._is_in_arguments
                )
        except EndOfText:
            if lexer.mark is None and not self._is_in_arguments:
                self._end()
            raise
        self._end()

    def _read_members(self) -> Reading[None]:
        lexer = self._lexer
        lexer.at += 1
        depth = 1  # 2 inside the value of `function`
        while depth:
            if (yield from lexer.peek(_SEPARATORS)) == "}":
                lexer.at += 1
                depth -= 1
                continue
            while _UNFINISHED_KEY.fullmatch(lexer.text, lexer.at):
                yield
            found = _KEY.match(lexer.text, lexer.at)
            if found is None:
                raise UnexpectedText
            key, lexer.at = found[1], found.end()
            first = yield from lexer.peek()
            is_unnamed = self._name is None
            if self._only is not None and key not in _CALL_KEYS:
                raise UnexpectedText
            if key == "function" and is_unnamed and depth == 1 and first == "{":
                lexer.at += 1
                depth = 2
            elif is_unnamed and (key in _NAME_KEYS or (key == "function" and depth == 1)):
                yield from self._read_name()
            elif key in _ARGUMENT_KEYS and not self._has_arguments:
                self._is_in_arguments = True
                yield from self._read_arguments(first)
                self._is_in_arguments = False
            else:
                yield from self._read_whole()
        if self._name is None or (self._only is not None and not self._has_arguments):
            raise UnexpectedText

    def _read_name(self) -> Reading[None]:
        word = yield from self._read_whole()
        name = json.loads(word) if word.startswith('"') else ""
        if not name or (self._only is not None and name not in self._only):
            raise UnexpectedText
        self._name = name
        if self._has_arguments:
            self._write("")

    def _read_arguments(self, first: str) -> Reading[None]:
        self._has_arguments = True
        self._write("")
        if first in "{[":
            yield from self._read_value(self._write)
        elif (text := (yield from self._read_whole())) != "null":
            is_quoted = first in "\"'"
            self._write(sendable(json.loads(text)) if is_quoted else text)

    def _read_whole(self) -> Reading[str]:
        parts: list[str] = []
        yield from self._read_value(parts.append)
        return "".join(parts)

    def _read_value(self, write: Callable[[str], None]) -> Reading[bool]:
        return JsonText(self._lexer, write, self._tags.all, around="}").read()

    def _write(self, args: str) -> None:
        self._is_empty = self._is_empty and not args
        self._early_args.append(args)
        if self._name is not None and self._is_sure:
            start_call(self._lexer, self._writer, self._name)
            self._writer.arguments("".join(self._early_args))
            self._early_args.clear()

    @property
    def _is_sure(self) -> bool:
        """Without a tag, the first key of the arguments or their end makes a call certain."""
        is_tagged = self._only is None or self._lexer.mark is None
        return is_tagged or "".join(self._early_args).strip() not in ("", "{", "[")

    def _end(self) -> None:
        if self._is_empty:
            self._write("{}")
        self._writer.end_call()


def read_headed_call(
    lexer: Lexer,
    writer: EventWriter,
    head: re.Pattern[str],
    tags: CallTags,
    names: Container[str] = (),
) -> Reading[None]:
    """Read one call whose name is in a head before a JSON object. `head` matches all text between
    the opening and the first brace; its group `name` is the name of the tool. A call whose head is
    followed by a tag or by the end has no arguments; then the name must have a mark after it (the
    group `mark`), or be one of `names`. Raises `UnexpectedText` for a text that is no head; the
    text stays unread, because it may hold an opening."""
    match, has_arguments = yield from _read_head(lexer, head, literals("{", *tags.all))
    name = match["name"] if match else ""
    if match is None or not (has_arguments or match["mark"] or name in names):
        raise UnexpectedText
    lexer.at = match.end()
    start_call(lexer, writer, name)
    if not has_arguments:
        writer.arguments("{}")
    else:
        try:
            yield from JsonText(lexer, writer.arguments, tags.all).read()
        except UnexpectedText:
            yield from read_broken_call(lexer, writer, tags, is_in_arguments=True)
    writer.end_call()


def _read_head(
    lexer: Lexer, head: re.Pattern[str], ends: Literals
) -> Reading[tuple[re.Match[str] | None, bool]]:
    try:
        while (found := ends.find(lexer.text[lexer.at :])) is None:
            if len(lexer.text) - lexer.at > _MAX_HEAD_CHARS:
                raise UnexpectedText
            yield
    except EndOfText as end:
        match = head.fullmatch(lexer.text, lexer.at)
        if not end.is_closed or match is None:
            raise
        return match, False
    start = lexer.at + found[0]
    if found[0] > _MAX_HEAD_CHARS:
        raise UnexpectedText
    return head.fullmatch(lexer.text, lexer.at, start), lexer.text[start] == "{"


@dataclass(frozen=True, slots=True)
class Section:
    """The tags around all calls and around each call, where a call is a head and a JSON object.
    `head`: see `read_headed_call`. `fence` may stand between the object and the end of the call.
    The tags around all calls may be missing in the output."""

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
        """Read the text after the first opening tag, up to and with the last tag."""
        call_begin, call_end = self.call_begin.text, self.call_end.text
        # The line break belongs to the end of the call, even if it arrives before the fence.
        ends = dict.fromkeys((f"\n{self.fence}{call_end}", f"{self.fence}{call_end}", call_end))
        tags = CallTags((call_begin,), (*ends, self.end.text))
        if opening != call_begin:
            yield from self._read_to_call(lexer, writer)
        is_call = True
        while is_call:
            yield from read_headed_call(lexer, writer, self.head, tags)
            with lexer.after_call():
                yield from read_residue(lexer, tags)
                lexer.mark = lexer.at
                is_call = bool((yield from lexer.take(call_begin)))

    def _read_to_call(self, lexer: Lexer, writer: EventWriter) -> Reading[None]:
        """Read up to and with the tag of the first call. Words before the tag are text."""
        begin = self.call_begin.text
        found = yield from lexer.find(literals(begin, self.end.text), _MAX_HEAD_CHARS)
        if found is None or not lexer.text.startswith(begin, lexer.at + found[0]):
            raise UnexpectedText
        words = lexer.text[lexer.at : lexer.at + found[0]]
        lexer.at += found[1]
        if words.strip():
            lexer.mark = lexer.at - len(begin)
            writer.text(words)


# -- One object for each call -------------------------------------------------------------

# Hermes, which Qwen and many others write. Several calls may share one pair of tags, and the last
# closing tag may be missing:
#
#     <tool_call>
#     {"name": "get_weather", "arguments": {"city": "Paris"}}
#     </tool_call>
HERMES_OPEN: Final = Tag("<tool_call>")
HERMES_CLOSE: Final = Tag("</tool_call>")
HERMES: Final = json_family(HERMES_OPEN, HERMES_CLOSE)

# Llama 3.1 to 3.3. Some models write `<|python_tag|>` before the object and `; ` between several
# calls, or all calls in an array. Without the tag only an object that calls one of the request's
# tools is a call, because an answer may be JSON:
#
#     {"name": "get_weather", "parameters": {"city": "Paris"}}
_LLAMA3_TAG: Final = "<|python_tag|>"
_LLAMA3_BARE: Final = ("{", "[{")


def _read_llama3(
    lexer: Lexer, writer: EventWriter, opening: str, tools: Sequence[Tool]
) -> Reading[None]:
    if opening in _LLAMA3_BARE:
        return read_bare_calls(lexer, writer, tools)
    return read_json_calls(lexer, writer, CallTags((_LLAMA3_TAG,)))


LLAMA3: Final = calls_family(Tag(_LLAMA3_TAG, *_LLAMA3_BARE), _read_llama3, [_LLAMA3_TAG])

# -- All calls in one array ---------------------------------------------------------------

# Granite 3. Granite 3.1 may write `<tool_call>` instead, and Granite 4 writes Hermes calls:
#
#     <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]
GRANITE_OPEN: Final = Tag("<|tool_call|>", "<tool_call>")
GRANITE: Final = json_family(GRANITE_OPEN)

# Phi-4-mini. Some models write `<|tool_call|>` and `<|/tool_call|>` around the array instead. The
# word without its bracket may be part of an answer about Python:
#
#     functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]
_PHI4_TAGS: Final = CallTags(("<|tool_call|>",), ("<|/tool_call|>", "</|tool_call|>"))
PHI4_OPEN: Final = Tag("functools[", *_PHI4_TAGS.open)


def _read_phi4(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
    if opening in _PHI4_TAGS.open:
        return read_json_calls(lexer, writer, _PHI4_TAGS)
    return read_json_calls(lexer, writer, is_array=True)


PHI4: Final = calls_family(PHI4_OPEN, _read_phi4, _PHI4_TAGS.all)

# Mistral's older models write an array. Devstral and models since 2025 write a head for each call;
# some write `[CALL_ID]` and an id between name and arguments, and the id is dropped. Both forms are
# read, whichever is expected. An array without the tag is read as calls where it calls one of the
# request's tools:
#
#     [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]
#     [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}
MISTRAL_OPEN: Final = "[TOOL_CALLS]"
MISTRAL_ARGS: Final = "[ARGS]"
_MISTRAL_BARE: Final = "[{"
_MISTRAL_HEAD: Final = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?P<mark>\[ARGS\]\s*)?", re.ASCII
)


def _read_mistral(
    lexer: Lexer, writer: EventWriter, opening: str, tools: Sequence[Tool]
) -> Reading[None]:
    tags = CallTags((MISTRAL_OPEN,))
    if opening == _MISTRAL_BARE:
        yield from read_bare_calls(lexer, writer, tools)
    elif (yield from lexer.peek_text("[", "{")):
        yield from read_json_calls(lexer, writer, tags)
    else:
        names = {tool.name for tool in tools}
        yield from read_headed_call(lexer, writer, _MISTRAL_HEAD, tags, names)
        with lexer.after_call():
            yield from read_residue(lexer, tags)


MISTRAL: Final = calls_family(
    Tag(MISTRAL_OPEN, _MISTRAL_BARE), _read_mistral, [MISTRAL_OPEN, MISTRAL_ARGS, "[CALL_ID]"]
)

# -- A head and an object for each call, in a section -------------------------------------

# DeepSeek V3 and R1 write the arguments in a fence. V3.1 and later write neither the kind nor the
# fence nor line breaks (added here). Both are read, whichever is expected:
#
#     <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
#     ```json
#     {"city": "Paris"}
#     ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
#
#     <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>
#     {"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
DEEPSEEK_SEPARATOR: Final = "<｜tool▁sep｜>"
DEEPSEEK_TAGS: Final = Section(
    Tag("<｜tool▁calls▁begin｜>"),
    Tag("<｜tool▁calls▁end｜>"),
    Tag("<｜tool▁call▁begin｜>"),
    Tag("<｜tool▁call▁end｜>"),
    re.compile(
        rf"\s*(?:\w+{DEEPSEEK_SEPARATOR}\s*(?=[\w.-]))?(?P<name>[\w.-]+)"
        rf"\s*(?P<mark>{DEEPSEEK_SEPARATOR}\s*)?(?:```(?:json)?\s*)?",
        re.ASCII,
    ),
    "```",
)
DEEPSEEK: Final = DEEPSEEK_TAGS.family(DEEPSEEK_SEPARATOR)

# Kimi K2, without the line break. The number counts the calls of the conversation. Clients do not
# get it: the renderer of prompts counts again:
#
#     <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0
#     <|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>
KIMI_K2_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
KIMI_K2_TAGS: Final = Section(
    Tag("<|tool_calls_section_begin|>"),
    Tag("<|tool_calls_section_end|>"),
    Tag("<|tool_call_begin|>"),
    Tag("<|tool_call_end|>"),
    re.compile(
        r"\s*(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?"
        rf"\s*(?P<mark>{re.escape(KIMI_K2_ARGUMENTS)})\s*",
        re.ASCII,
    ),
)
KIMI_K2: Final = KIMI_K2_TAGS.family(KIMI_K2_ARGUMENTS)
