"""An output as a sequence of messages, each with a head that names the recipient:

    <|channel|>analysis<|message|>The user says hello.<|end|>
    <|start|>assistant<|channel|>final<|message|>Hello!

The head decides whether the body is reasoning, the answer, or a call. Text is passed on at once, so
a message that is cut is not lost. Output without any head is the answer. The prompt ends with
`<|start|>assistant`.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import EndOfText, Lexer, Parser, Reading, Tag, UnexpectedText
from vinery_serving.output.parsers.argument_types import ParameterTypes
from vinery_serving.output.parsers.base import (
    ParserFamily,
    PlainParser,
    ReasoningTags,
    read_with_calls,
    start_call,
)
from vinery_serving.output.parsers.drafts import DraftedReasoning
from vinery_serving.output.parsers.tagged import TaggedCall, TagSyntax
from vinery_serving.output.parsers.value_text import JsonText
from vinery_serving.output.writer import EventWriter

START: Final = "<|start|>"
MESSAGE: Final = "<|message|>"
NEXT: Final = f"{START}assistant"
_RECIPIENT = re.compile(r"\bto=((?:(?!<\|)\S)+)")


def read_messages(
    lexer: Lexer,
    writer: EventWriter,
    heads: tuple[str, ...],
    ends: tuple[str, ...],
    new_body: Callable[[str], Parser],
) -> Reading[None]:
    """Read messages. `heads`: the beginnings of heads. `ends`: the tags that close a message.
    `new_body` returns the parser of a message for its head. The tag of a head closes reasoning,
    too."""
    end_tag, message_tag = Tag(START, *ends), Tag(MESSAGE)
    reasoning_end = Tag(*end_tag.strings, *(head for head in heads if head.startswith("<|")))
    end = ""
    while True:
        lexer.is_reasoning = False
        head: list[str] = []
        try:
            if end == START or (yield from lexer.peek_text(START, MESSAGE, *heads)):
                yield from lexer.take_until(message_tag, head.append)
        except EndOfText:
            # A head that is cut is syntax. Text that only resembles the beginning of a head is
            # text.
            text = "".join(head) + lexer.take_all()
            if text.strip() and "<|" not in text:
                writer.text(text)
            raise
        body = new_body("".join(head).rpartition(START)[2])
        lexer.is_reasoning = body.is_reasoning
        try:
            tag = reasoning_end if body.is_reasoning else end_tag
            end = yield from lexer.take_until(tag, body.feed)
            lexer.at -= len(end) if end in heads else 0
        except EndOfText as end_of_text:
            body.feed(lexer.take_all())
            body.finish(is_closed=end_of_text.is_closed)
            raise
        body.close()
        writer.end_message()


def message_recipient(head: str) -> str:
    recipient = _RECIPIENT.search(head)
    return recipient[1] if recipient else ""


def text_parser(writer: EventWriter, *, is_reasoning: bool) -> Parser:
    write = writer.reasoning if is_reasoning else writer.text
    return PlainParser(write, is_reasoning=is_reasoning)


def read_call_message(
    lexer: Lexer, writer: EventWriter, name: str, *, is_custom: bool
) -> Reading[None]:
    """Read a message that is a call: arguments, in JSON or raw, or the input of a custom tool. Text
    after JSON is dropped. A message that is cut after its last bracket holds a complete call."""
    is_complete, is_empty = False, True
    lexer.mark = 0
    try:
        while not lexer.text:
            yield
        start_call(lexer, writer, name)
        first = yield from lexer.peek()
        is_empty = False
        if first == "{" and not is_custom:
            with suppress(UnexpectedText):
                is_complete = yield from JsonText(lexer, writer.arguments).read()
        while True:
            rest = lexer.take_all()
            writer.arguments("" if is_complete else rest)
            yield
    except EndOfText as end:
        start_call(lexer, writer, name)
        if end.is_closed and is_empty and not is_custom:
            writer.arguments("{}")
        if end.is_closed or is_complete:
            writer.end_call()


# -- Harmony, the form of gpt-oss ---------------------------------------------------------

# Reasoning, notes before calls, calls and answers are separate messages. The recipient of a call
# may also come before the channel, and `json` may come without the mark `<|constrain|>`.
#
#     <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>
#     {"city": "Paris"}<|call|>
CHANNEL: Final = "<|channel|>"
CONSTRAIN: Final = "<|constrain|>"
CALL: Final = "<|call|>"
_FUNCTIONS: Final = "functions."
TO: Final = f"to={_FUNCTIONS}"
_END: Final = "<|end|>"
_RETURN: Final = "<|return|>"

GPTOSS_REASONING: Final = ReasoningTags(
    Tag(f"{CHANNEL}analysis{MESSAGE}"), Tag(_END), after_close=NEXT
)

_CHANNEL_NAME: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_ROLES: Final = frozenset(("assistant", "user", "all"))  # roles, which are no tools


def _read_gptoss(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
    heads, ends = (CHANNEL, CONSTRAIN, "to="), (_END, CALL, _RETURN)
    return read_messages(lexer, writer, heads, ends, partial(_gptoss_body, writer, tools))


def _gptoss_body(writer: EventWriter, tools: Sequence[Tool], head: str) -> Parser:
    name = message_recipient(head).removeprefix(_FUNCTIONS)
    if tools and name and name not in _ROLES:
        is_custom = any(tool.is_custom for tool in tools if tool.name == name)
        return Parser(lambda lexer: read_call_message(lexer, writer, name, is_custom=is_custom))
    channel = _CHANNEL_NAME.search(head)
    is_reasoning = channel is not None and channel[1] == "analysis"
    return text_parser(writer, is_reasoning=is_reasoning)


GPTOSS: Final = ParserFamily(
    _read_gptoss,
    frozenset((START, MESSAGE, CHANNEL, CONSTRAIN, _END, CALL, _RETURN)),
    GPTOSS_REASONING,
)

# -- Muse Glimmer, which others call onyx -------------------------------------------------

# Messages have a recipient, and calls are between tags in them. A tag in reasoning is no call.
#
#     <|start|>assistant to=get_weather<|message|><atem:function_calls>
#     <atem:invoke name="get_weather">
#     <atem:parameter name="city">Paris</atem:parameter>
#     </atem:invoke>
#     </atem:function_calls><|eot|>
_MESSAGE_END: Final = "<|eom|>"
_TURN_END: Final = "<|eot|>"
ONYX_REASONING: Final = ReasoningTags(
    Tag(f" to=self{MESSAGE}"), Tag(_MESSAGE_END), after_close=NEXT
)

ONYX_TAGS: Final = TagSyntax(
    wrapper="<atem:function_calls>",
    after_wrapper="\n",
    call_begin='<atem:invoke name="',
    name_end='">',
    after_name="\n",
    key_begin='<atem:parameter name="',
    key_end='">',
    value_end="</atem:parameter>",
    after_value="\n",
    call_end="</atem:invoke>",
    wrapper_end="</atem:function_calls>",
)


def _read_onyx(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
    types = ParameterTypes(tools)

    def new_body(head: str) -> Parser:
        is_reasoning = message_recipient(head) == "self"
        if not tools:
            return text_parser(writer, is_reasoning=is_reasoning)
        if is_reasoning:
            return DraftedReasoning(read_body, writer, tools, writer.reasoning)
        return Parser(lambda lexer: read_body(lexer, writer, tools))

    def read_body(lexer: Lexer, writer: EventWriter, _: object) -> Reading[None]:
        return read_with_calls(lexer, writer, tools, ONYX_TAGS.opening, read_call)

    def read_call(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
        return TaggedCall(lexer, writer, ONYX_TAGS, types).read(opening)

    return read_messages(lexer, writer, ("to=",), (_MESSAGE_END, _TURN_END), new_body)


ONYX: Final = ParserFamily(
    _read_onyx, frozenset((START, MESSAGE, _MESSAGE_END, _TURN_END)), ONYX_REASONING
)
