"""The calls of Llama 3 in JSON (see the parser).

Where a grammar holds free text to its calls, `{"name": ` always begins one.
"""

from __future__ import annotations

from serving.constraints.ebnf import StructuralTag
from serving.constraints.families.base import Calls
from serving.constraints.tags import json_call_tag
from serving.core.request import Tool, ToolChoice


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    return json_call_tag(tool, choice, key="parameters")


LLAMA3_CALLS = Calls(_call, trigger='{"name": ', separator="; ")
