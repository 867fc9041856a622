"""Hermes tool calls, which Qwen and many others write:

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Several calls may share one pair of tags, and the last closing tag may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.constraints.shapes import calls_shape, json_call_tag
from serving.core.request import Tool, ToolChoice
from serving.output.calls import CallsParser
from serving.output.formats.base import Format, Shape
from serving.output.formats.plain import PlainParser
from serving.output.json_calls import JsonCalls
from serving.output.lexer import Tag
from serving.output.parse_events import Parser

_OPEN = Tag("<tool_call>")
_CLOSE = Tag("</tool_call>")


class Hermes(Format):
    """The family of models that were trained on this form."""

    name = "hermes"
    makes_calls = True
    special_texts = frozenset({_OPEN.text, _CLOSE.text})

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        if not tools:
            return PlainParser()
        return CallsParser(_OPEN, lambda opening: JsonCalls(opening, close=_CLOSE))

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        before, after = f"{_OPEN.text}\n", f"\n{_CLOSE.text}"
        tags = [json_call_tag(tool, choice, before=before, after=after) for tool in tools]
        return calls_shape(tags, choice, trigger=_OPEN.text, parallel=parallel)
