"""Tool calls of Phi-4-mini, all in one array:

    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Some write `<|tool_call|>` and `<|/tool_call|>` around the array instead.
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

_WORD = "functools"
_TOKEN = "<|tool_call|>"
# The word alone may be part of an answer about Python.
_OPEN = Tag(f"{_WORD}[", _TOKEN)
_CLOSE = Tag("<|/tool_call|>", "</|tool_call|>")


class Phi4(Format):
    """The family of models that were trained on this form."""

    name = "phi4"
    makes_calls = True
    special_texts = frozenset({_TOKEN, *_CLOSE.texts})

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        return CallsParser(_OPEN, _new_reader) if tools else PlainParser()

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        return json_array_shape(
            tools, choice, parallel=parallel, trigger=_OPEN.text, begin=_OPEN.text
        )


def _new_reader(opening: str) -> JsonCalls:
    is_token = opening == _TOKEN
    return JsonCalls(opening, close=_CLOSE) if is_token else JsonCalls(opening, is_array=True)
