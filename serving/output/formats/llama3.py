"""Tool calls of Llama 3.1 to 3.3 in JSON:

    {"name": "get_weather", "parameters": {"city": "Paris"}}

Some write `<|python_tag|>` before it, several calls are separated by `; `. Without the tag
only an object that calls one of the request's tools is a call: an answer may be JSON.
Where a grammar holds free text to its calls, though, `{"name": ` always begins one.
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

_BARE = "{"
_OPEN = Tag("<|python_tag|>", _BARE)


class Llama3(Format):
    """The family of models that were trained on this form."""

    name = "llama3"
    makes_calls = True
    special_texts = frozenset({_OPEN.text})

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        if not tools:
            return PlainParser()
        names = frozenset(tool.name for tool in tools)

        def new_reader(opening: str) -> JsonCalls:
            return JsonCalls.untagged(_BARE, names) if opening == _BARE else JsonCalls(opening)

        return CallsParser(_OPEN, new_reader)

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        tags = [json_call_tag(tool, choice, key="parameters") for tool in tools]
        return calls_shape(tags, choice, trigger='{"name": ', parallel=parallel, separator="; ")
