"""Hermes calls (see the parser)."""

from __future__ import annotations

from serving.constraints.ebnf import StructuralTag
from serving.constraints.families.base import Calls
from serving.constraints.tags import json_call_tag
from serving.core.request import Tool, ToolChoice
from serving.output.parsers.hermes import CLOSE, OPEN


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    return json_call_tag(tool, choice, before=f"{OPEN.text}\n", after=f"\n{CLOSE.text}")


HERMES_CALLS = Calls(_call, trigger=OPEN.text)
