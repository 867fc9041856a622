"""Tool calls of Granite 3, all in one array. Granite 4 writes Hermes calls.

<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.constraints.shapes import json_array_shape
from serving.core.request import Tool, ToolChoice
from serving.output.calls import CallsParser
from serving.output.formats.base import Format, Shape
from serving.output.formats.plain import PlainParser
from serving.output.json_calls import JsonCalls
from serving.output.lexer import Tag
from serving.output.parse_events import Parser

_OPEN = Tag("<|tool_call|>")


class Granite(Format):
    """The family of models that were trained on this form."""

    name = "granite"
    makes_calls = True
    special_texts = frozenset({_OPEN.text})

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        return CallsParser(_OPEN, JsonCalls) if tools else PlainParser()

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        return json_array_shape(
            tools, choice, parallel=parallel, trigger=_OPEN.text, begin=f"{_OPEN.text}["
        )
