"""Harmony, the form of gpt-oss: reasoning, notes before calls, calls and answers are messages
of their own.

    <|channel|>analysis<|message|>The user asks ...<|end|><|start|>assistant
    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>
    {"city": "Paris"}<|call|>

without the line breaks. The prompt ends with `<|start|>assistant`. The recipient of a call may
also come before the channel, and `json` may come without the mark `<|constrain|>`.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag
from vinery_serving.output.parser import Parser
from vinery_serving.output.parsers.base import ParserFamily, ReasoningTags
from vinery_serving.output.parsers.messages import (
    MESSAGE,
    START,
    read_call_message,
    read_messages,
    recipient_of,
    text_parser,
)
from vinery_serving.output.writer import EventWriter

CHANNEL: Final = "<|channel|>"
CONSTRAIN: Final = "<|constrain|>"
CALL: Final = "<|call|>"
NEXT: Final = f"{START}assistant"
_FUNCTIONS: Final = "functions."
TO: Final = f"to={_FUNCTIONS}"
_END: Final = "<|end|>"
_RETURN: Final = "<|return|>"

REASONING: Final = ReasoningTags(Tag(f"{CHANNEL}analysis{MESSAGE}"), Tag(_END), after_close=NEXT)

_CHANNEL_NAME: Final = re.compile(r"<\|channel\|>\s*(\w+)")
# Roles, which are no tools.
_ROLES: Final = frozenset(("assistant", "user", "all"))


def _read(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
    heads, ends = (CHANNEL, CONSTRAIN, "to="), (_END, CALL, _RETURN)
    return read_messages(lexer, writer, heads, ends, partial(_new_body, writer, tools))


def _new_body(writer: EventWriter, tools: Sequence[Tool], head: str) -> Parser:
    name = recipient_of(head).removeprefix(_FUNCTIONS)
    if tools and name and name not in _ROLES:
        is_custom = any(tool.is_custom for tool in tools if tool.name == name)
        return Parser(lambda lexer: read_call_message(lexer, writer, name, is_custom=is_custom))
    channel = _CHANNEL_NAME.search(head)
    is_reasoning = channel is not None and channel[1] == "analysis"
    return text_parser(writer, is_reasoning=is_reasoning)


GPTOSS: Final = ParserFamily(
    _read,
    frozenset((START, MESSAGE, CHANNEL, CONSTRAIN, _END, CALL, _RETURN)),
    REASONING,
)
