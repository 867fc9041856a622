"""Harmony, the form of gpt-oss: reasoning, notes before calls, calls and answers are messages
of their own.

    <|channel|>analysis<|message|>The user asks ...<|end|><|start|>assistant
    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>
    {"city": "Paris"}<|call|>

without the line breaks. The prompt ends with `<|start|>assistant`. The recipient of a call may
also come before the channel, and `json` may come without the mark `<|constrain|>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from serving.core.request import Tool
from serving.output.lexer import Tag
from serving.output.parser import EventSink, Parser
from serving.output.parsers.base import ReasoningTags
from serving.output.parsers.messages import (
    MESSAGE,
    START,
    Body,
    CallBody,
    MessagesParser,
    TextBody,
)

CHANNEL: Final = "<|channel|>"
CONSTRAIN: Final = "<|constrain|>"
CALL: Final = "<|call|>"
NEXT: Final = f"{START}assistant"
_FUNCTIONS: Final = "functions."
TO: Final = f"to={_FUNCTIONS}"
_END: Final = "<|end|>"
_RETURN: Final = "<|return|>"

_RECIPIENT: Final = re.compile(r"\bto=((?:(?!<\|)\S)+)")
_CHANNEL_NAME: Final = re.compile(r"<\|channel\|>\s*(\w+)")
# Roles, which are no tools.
_ROLES: Final = frozenset(("assistant", "user", "all"))


class GptOss:
    """The family of models that were trained on this form."""

    special_texts = frozenset((START, MESSAGE, CHANNEL, CONSTRAIN, _END, CALL, _RETURN))
    reasoning = ReasoningTags(Tag(f"{CHANNEL}analysis{MESSAGE}"), Tag(_END), after_close=NEXT)

    def new_parser(
        self, sink: EventSink, tools: Sequence[Tool], *, opens_reasoning: bool
    ) -> Parser:
        def new_body(head: str) -> Body:
            return _new_body(sink, head, reads_calls=bool(tools))

        heads = (CHANNEL, CONSTRAIN, "to=")
        return MessagesParser(sink, heads, Tag(_END, CALL, _RETURN), new_body)


def _new_body(sink: EventSink, head: str, *, reads_calls: bool) -> Body:
    recipient = _RECIPIENT.search(head)
    name = recipient[1].removeprefix(_FUNCTIONS) if recipient else ""
    if reads_calls and name and name not in _ROLES:
        return CallBody(sink, name)
    channel = _CHANNEL_NAME.search(head)
    is_reasoning = channel is not None and channel[1] == "analysis"
    return TextBody(sink, is_reasoning=is_reasoning)


GPTOSS = GptOss()
