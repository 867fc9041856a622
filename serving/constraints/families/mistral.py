"""The calls of Mistral's models (see the parser): an array, or a head for each call."""

from __future__ import annotations

from serving.constraints.ebnf import StructuralTag
from serving.constraints.families.base import Calls
from serving.constraints.tags import arguments_tag, json_call_tag
from serving.core.request import Tool, ToolChoice
from serving.output.parsers.mistral import ARGS, OPEN


def _headed_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    begin = f"{OPEN}{tool.name}{ARGS}"
    return {"type": "tag", "begin": begin, "content": arguments_tag(tool, choice), "end": ""}


MISTRAL_CALLS = Calls(json_call_tag, trigger=OPEN, begin=f"{OPEN}[", separator=", ", end="]")
DEVSTRAL_CALLS = Calls(_headed_call, trigger=OPEN, separator="")
