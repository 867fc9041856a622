"""The calls of DeepSeek (see the parser): of V3 and R1, and of V3.1 and later."""

from __future__ import annotations

from serving.constraints.ebnf import StructuralTag
from serving.constraints.families.base import Calls
from serving.constraints.tags import arguments_tag
from serving.core.request import Tool, ToolChoice
from serving.output.parsers.deepseek import CALL_BEGIN, CALL_END, CALLS_BEGIN, CALLS_END, SEPARATOR


def _fenced_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    return _call(tool, choice, f"function{SEPARATOR}{tool.name}\n```json\n", "\n```")


def _bare_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    return _call(tool, choice, f"{tool.name}{SEPARATOR}", "")


def _call(tool: Tool, choice: ToolChoice, head: str, tail: str) -> StructuralTag:
    return {
        "type": "tag",
        "begin": CALL_BEGIN.text + head,
        "content": arguments_tag(tool, choice),
        "end": tail + CALL_END.text,
    }


_BEGIN, _END = CALLS_BEGIN.text, CALLS_END.text
DEEPSEEK_V3_CALLS = Calls(_fenced_call, trigger=_BEGIN, separator="\n", begin=_BEGIN, end=_END)
DEEPSEEK_V31_CALLS = Calls(_bare_call, trigger=_BEGIN, separator="", begin=_BEGIN, end=_END)
