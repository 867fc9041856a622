"""Gemma 4: reasoning and calls, each in a form of its own.

    <|channel>thought
    The user asks ...<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>

Keys have no quotes, and strings a mark of their own, without escapes.
"""

from __future__ import annotations

import re
from typing import Final

from serving.output.lexer import Tag
from serving.output.parser import EventSink
from serving.output.parsers.base import CallReader, CallsFamily, CallState, ReasoningTags
from serving.output.parsers.literal_text import GEMMA, LiteralValue
from serving.output.parsers.reasoning import WithReasoning

OPEN = Tag("<|tool_call>")
CLOSE = Tag("<tool_call|>")
QUOTE = '<|"|>'
REASONING = ReasoningTags(Tag("<|channel>thought"), Tag("<channel|>"))

_CALL: Final = "call:"
_NAME: Final = re.compile(r"[\w.\-]+")


class _Call(CallReader):
    """Reads one call after `opening`, up to and with the closing tag."""

    def __init__(self, sink: EventSink, opening: str) -> None:
        super().__init__(sink, opening)
        self._is_started = False
        self._value = LiteralValue(GEMMA)

    def feed(self, text: str) -> None:
        self._lexer.feed(text)
        self.pending += text
        if not self._is_started:
            self._read_name()
        if self._is_started:
            self.pending = ""
            self._read_arguments()
        if self._value.is_complete and self._lexer.take_space_and(CLOSE) is not None:
            self.state = CallState.ENDED
        if self.state is not CallState.OPEN:
            self.rest = self._lexer.take_all()
            self.pending = self.pending.removesuffix(self.rest)

    def _read_name(self) -> None:
        text = self._lexer.text.lstrip()
        name = _NAME.match(text, len(_CALL)) if text.startswith(_CALL) else None
        after = text[name.end() :].lstrip() if name else ""
        if name and after.startswith("{"):
            self._is_started = True
            self._lexer.text = after
            self._sink.start_call(name[0])
            return
        may_become_one = text.startswith(_CALL) and len(text) == len(_CALL)
        if after or not (name or may_become_one or _CALL.startswith(text)):
            self.state = CallState.BROKEN

    def _read_arguments(self) -> None:
        if self._value.is_complete:
            return
        at, args = self._value.take(self._lexer.text, 0)
        self._lexer.text = self._lexer.text[at:]
        self._sink.arguments(args)
        if self._value.is_broken:
            self.state = CallState.ENDED
        if self._value.is_broken or self._value.is_complete:
            self._sink.end_call()


GEMMA4 = WithReasoning(
    CallsFamily(
        OPEN,
        lambda sink, opening, _: _Call(sink, opening),
        special_texts=frozenset((OPEN.text, CLOSE.text, QUOTE, "<|channel>", "<channel|>")),
    ),
    REASONING,
)
