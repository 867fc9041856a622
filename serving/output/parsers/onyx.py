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
from serving.output.calls import CallsParser
from serving.output.lexer import Tag
from serving.output.messages import MESSAGE, START, Body, MessagesParser, ParserBody, TextBody
from serving.output.parse_events import Parser, Reasoning, Text
from serving.output.parsers.base import ReasoningTags
from serving.output.tagged_call import TaggedCall, TagSyntax
from serving.output.typed import ParameterTypes

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

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        types = ParameterTypes(tools)

        def name_of(written: str) -> str:
            return _known_name(written, tools)

        def new_body(head: str) -> Body:
            recipient = _RECIPIENT.search(head)
            if recipient and recipient[1] == "self":
                return TextBody(Reasoning)
            if not tools:
                return TextBody(Text)
            return ParserBody(
                CallsParser(
                    SYNTAX.opening,
                    lambda tag: TaggedCall(SYNTAX, types, tag, name_of=name_of),
                )
            )

        return MessagesParser(("to=",), Tag(_END, _LAST_END), new_body)


def _known_name(written: str, tools: Sequence[Tool]) -> str:
    """Models put a name space before names that have none: `get_weather.get_weather`."""
    names = {tool.name for tool in tools}
    last = written.rpartition(".")[2]
    return last if written not in names and last in names else written


ONYX = Onyx()
