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

from collections.abc import Sequence
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag
from vinery_serving.output.parser import Parser
from vinery_serving.output.parsers.argument_types import ParameterTypes
from vinery_serving.output.parsers.base import ParserFamily, ReasoningTags, read_with_calls
from vinery_serving.output.parsers.drafts import DraftedReasoning
from vinery_serving.output.parsers.messages import (
    MESSAGE,
    START,
    read_messages,
    recipient_of,
    text_parser,
)
from vinery_serving.output.parsers.tagged import TaggedCall, TagSyntax
from vinery_serving.output.writer import EventWriter

_END: Final = "<|eom|>"
_LAST_END: Final = "<|eot|>"
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


def _read(lexer: Lexer, writer: EventWriter, tools: Sequence[Tool]) -> Reading[None]:
    types = ParameterTypes(tools)

    def new_body(head: str) -> Parser:
        is_reasoning = recipient_of(head) == "self"
        if not tools:
            return text_parser(writer, is_reasoning=is_reasoning)
        if is_reasoning:
            return DraftedReasoning(read_body, writer, tools, writer.reasoning)
        return Parser(lambda lexer: read_body(lexer, writer, tools))

    def read_body(lexer: Lexer, writer: EventWriter, _: object) -> Reading[None]:
        return read_with_calls(lexer, writer, tools, SYNTAX.opening, read_call)

    def read_call(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
        call = TaggedCall(lexer, writer, SYNTAX, types)
        return call.read(opening)

    return read_messages(lexer, writer, ("to=",), (_END, _LAST_END), new_body)


ONYX: Final = ParserFamily(
    _read,
    frozenset((START, MESSAGE, _END, _LAST_END)),
    REASONING,
)
