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
from typing import Final

from serving.core.request import Tool
from serving.output.lexer import Tag
from serving.output.parser import EventSink, Parser
from serving.output.parsers.argument_types import ParameterTypes
from serving.output.parsers.base import CallsParser, ReasoningTags
from serving.output.parsers.messages import (
    MESSAGE,
    START,
    Body,
    MessagesParser,
    ParserBody,
    TextBody,
)
from serving.output.parsers.tagged import TaggedCall, TagSyntax

_END: Final = "<|eom|>"
_LAST_END: Final = "<|eot|>"
_RECIPIENT: Final = re.compile(r"\bto=((?:(?!<\|)\S)+)")
_NEXT: Final = f"{START}assistant"

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


class Onyx:
    """The family of models that were trained on this form."""

    special_texts = frozenset((START, MESSAGE, _END, _LAST_END))
    reasoning = ReasoningTags(Tag(f" to=self{MESSAGE}"), Tag(_END), after_close=_NEXT)

    def new_parser(
        self, sink: EventSink, tools: Sequence[Tool], *, opens_reasoning: bool
    ) -> Parser:
        types = ParameterTypes(tools)

        def name_of(written: str) -> str:
            return _known_name(written, tools)

        def new_body(head: str) -> Body:
            recipient = _RECIPIENT.search(head)
            is_reasoning = recipient is not None and recipient[1] == "self"
            if is_reasoning or not tools:
                return TextBody(sink, is_reasoning=is_reasoning)
            return ParserBody(CallsParser(sink, SYNTAX.opening, new_reader))

        def new_reader(opening: str) -> TaggedCall:
            return TaggedCall(sink, SYNTAX, types, opening, name_of=name_of)

        return MessagesParser(sink, ("to=",), Tag(_END, _LAST_END), new_body)


def _known_name(written: str, tools: Sequence[Tool]) -> str:
    """Models put a name space before names that have none: `get_weather.get_weather`."""
    names = {tool.name for tool in tools}
    last = written.rpartition(".")[2]
    return last if written not in names and last in names else written


ONYX = Onyx()
