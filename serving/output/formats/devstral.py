"""Tool calls of Devstral and Mistral's other models since 2025, each with a head:

    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

Between name and arguments some write `[CALL_ID]` and an id, which no client needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.constraints.shapes import arguments_shape, calls_shape
from serving.core.request import Tool, ToolChoice
from serving.output.formats.base import Format, Shape
from serving.output.formats.mistral import ARGS, OPEN, SPECIAL_TEXTS, mistral_parser
from serving.output.parse_events import Parser


class Devstral(Format):
    """The family of models that were trained on this form."""

    name = "devstral"
    makes_calls = True
    special_texts = SPECIAL_TEXTS

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        return mistral_parser(tools)

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        tags = [_tag(tool, choice) for tool in tools]
        return calls_shape(tags, choice, trigger=OPEN, parallel=parallel, separator="")


def _tag(tool: Tool, choice: ToolChoice) -> Shape:
    begin = f"{OPEN}{tool.name}{ARGS}"
    return {"type": "tag", "begin": begin, "content": arguments_shape(tool, choice), "end": ""}
