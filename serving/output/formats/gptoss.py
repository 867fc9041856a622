"""Harmony, the form of gpt-oss: thoughts, notes before calls, calls and answers are messages
of their own.

    <|channel|>analysis<|message|>The user asks ...<|end|><|start|>assistant
    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>
    {"city": "Paris"}<|call|>

without the line breaks. The prompt ends with `<|start|>assistant`. Whom a call is for may
also stand before the channel, and what the constraint says may come without its mark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from serving.constraints.shapes import arguments_shape, calls_shape
from serving.core.request import Tool, ToolChoice, ToolMode
from serving.output.formats.base import Shape
from serving.output.formats.messages import MessagesFormat
from serving.output.lexer import Tag
from serving.output.messages import (
    MESSAGE,
    START,
    Body,
    CallBody,
    MessagesParser,
    TextBody,
)
from serving.output.parse_events import Parser, Reasoning, Text

_CHANNEL: Final = "<|channel|>"
_CONSTRAIN: Final = "<|constrain|>"
_END: Final = "<|end|>"
_CALL: Final = "<|call|>"
_RETURN: Final = "<|return|>"
_FUNCTIONS: Final = "functions."
_TO: Final = f"to={_FUNCTIONS}"
_NEXT: Final = f"{START}assistant"

_RECIPIENT: Final = re.compile(r"\bto=((?:(?!<\|)\S)+)")
_CHANNEL_NAME: Final = re.compile(r"<\|channel\|>\s*(\w+)")
# Roles, which are no tools.
_PEOPLE: Final = frozenset(("assistant", "user", "all"))

# How the head of a call goes on after its name, the usual form first.
_HEAD_ENDS: Final = (
    f" {_CONSTRAIN}json{MESSAGE}",
    f"{_CHANNEL}commentary {_CONSTRAIN}json{MESSAGE}",
    f"{_CHANNEL}commentary json{MESSAGE}",
    f" json{MESSAGE}",
    MESSAGE,
)


class GptOss(MessagesFormat):
    """The family of models that were trained on this form."""

    name = "gptoss"
    special_texts = frozenset({START, MESSAGE, _CHANNEL, _CONSTRAIN, _END, _CALL, _RETURN})
    thought_begin = f"{_CHANNEL}analysis{MESSAGE}"
    thought_end = f"{_END}{_NEXT}"
    answer_begin = f"{_CHANNEL}final{MESSAGE}"

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        def new_body(head: str) -> Body:
            return _new_body(head, makes_calls=bool(tools))

        heads = (_CHANNEL, _CONSTRAIN, "to=")
        return MessagesParser(heads, Tag(_END, _CALL, _RETURN), new_body)

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        is_free = choice.mode is ToolMode.AUTO
        tag = _free_call_tag if is_free else _call_tag
        tags = [tag(tool, choice) for tool in tools]
        return calls_shape(tags, choice, trigger=_TO, parallel=parallel, separator=_NEXT)


def _new_body(head: str, *, makes_calls: bool) -> Body:
    recipient = _RECIPIENT.search(head)
    name = recipient[1].removeprefix(_FUNCTIONS) if recipient else ""
    if makes_calls and name and name not in _PEOPLE:
        return CallBody(name)
    channel = _CHANNEL_NAME.search(head)
    is_thought = channel is not None and channel[1] == "analysis"
    return TextBody(Reasoning if is_thought else Text)


def _call_tag(tool: Tool, choice: ToolChoice) -> Shape:
    return {
        "type": "tag",
        "begin": f"{_CHANNEL}commentary {_TO}{tool.name}{_HEAD_ENDS[0]}",
        "content": arguments_shape(tool, choice),
        "end": _CALL,
    }


def _free_call_tag(tool: Tool, choice: ToolChoice) -> Shape:
    """From the name on: what comes before it differs."""
    ends = [{"type": "const_string", "value": end} for end in _HEAD_ENDS]
    head_end = {"type": "or", "elements": ends}
    return {
        "type": "tag",
        "begin": f"{_TO}{tool.name}",
        "content": {"type": "sequence", "elements": [head_end, arguments_shape(tool, choice)]},
        "end": _CALL,
    }
