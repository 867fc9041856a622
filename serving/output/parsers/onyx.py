"""The form of Muse Glimmer, which others call onyx: messages with a recipient, and calls
between tags in them.

     to=self<|message|>The user asks ...<|eom|>
    <|start|>assistant to=get_weather<|message|><atem:function_calls>
    <atem:invoke name="get_weather">
    <atem:parameter name="city">Paris</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eot|>

The prompt ends with `<|start|>assistant`. A tag in reasoning is no call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from serving.core.request import Tool
from serving.output.lexer import Lexer, Reading, Tag
from serving.output.parser import EventSink, Parser
from serving.output.parsers.argument_types import ParameterTypes
from serving.output.parsers.base import ParserFamily, ReasoningTags, read_with_calls
from serving.output.parsers.messages import (
    MESSAGE,
    START,
    Body,
    parser_body,
    read_messages,
    text_body,
)
from serving.output.parsers.tagged import TaggedCall, TagSyntax

_END: Final = "<|eom|>"
_LAST_END: Final = "<|eot|>"
_RECIPIENT: Final = re.compile(r"\bto=((?:(?!<\|)\S)+)")
_NEXT: Final = f"{START}assistant"
REASONING: Final = ReasoningTags(Tag(f" to=self{MESSAGE}"), Tag(_END), after_close=_NEXT)

SYNTAX: Final = TagSyntax(
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


def _read(lexer: Lexer, sink: EventSink, tools: Sequence[Tool]) -> Reading[None]:
    types = ParameterTypes(tools)

    def new_body(head: str) -> Body:
        recipient = _RECIPIENT.search(head)
        is_reasoning = recipient is not None and recipient[1] == "self"
        if is_reasoning or not tools:
            return text_body(sink, is_reasoning=is_reasoning)
        return parser_body(Parser(read_body))

    def read_body(lexer: Lexer) -> Reading[None]:
        return read_with_calls(lexer, sink, tools, SYNTAX.opening, read_call)

    def read_call(lexer: Lexer, _: EventSink, opening: str, __: object) -> Reading[None]:
        call = TaggedCall(lexer, sink, SYNTAX, types, name_of=partial(_known_name, tools))
        return call.read(opening)

    return read_messages(lexer, sink, ("to=",), (_END, _LAST_END), new_body)


def _known_name(tools: Sequence[Tool], written: str) -> str:
    """Models put a name space before names that have none: `get_weather.get_weather`."""
    names = {tool.name for tool in tools}
    last = written.rpartition(".")[2]
    return last if written not in names and last in names else written


# The models that were trained on this form.
ONYX: Final = ParserFamily(
    _read,
    frozenset((START, MESSAGE, _END, _LAST_END)),
    REASONING,
)
