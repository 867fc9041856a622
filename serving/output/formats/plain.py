"""Models whose output is only text: no thoughts, no tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from serving.core.request import Tool, ToolChoice
from serving.output.formats.base import Format, Shape
from serving.output.parse_events import Parser, Piece, Text


class PlainParser:
    """All text is answer."""

    is_reasoning = False

    def feed(self, text: str) -> list[Piece]:
        return [Text(text)] if text else []

    def finish(self) -> list[Piece]:
        return []


class Plain(Format):
    """The family of models that say what they say."""

    name = "plain"
    makes_calls = False
    special_texts: frozenset[str] = frozenset()

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        return PlainParser()

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        raise NotImplementedError("asked for only where makes_calls is true")
