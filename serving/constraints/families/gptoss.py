"""The calls and answers of gpt-oss as messages (see the parser)."""

from __future__ import annotations

from typing import Final

from serving.constraints.ebnf import StructuralTag
from serving.constraints.families.base import Messages
from serving.constraints.tags import arguments_tag
from serving.core.request import Tool, ToolChoice, ToolMode
from serving.output.parsers.gptoss import CALL, CHANNEL, CONSTRAIN, GPTOSS, NEXT, TO
from serving.output.parsers.messages import MESSAGE

# How the head of a call goes on after its name, the usual form first.
_HEAD_ENDS: Final = (
    f" {CONSTRAIN}json{MESSAGE}",
    f"{CHANNEL}commentary {CONSTRAIN}json{MESSAGE}",
    f"{CHANNEL}commentary json{MESSAGE}",
    f" json{MESSAGE}",
    MESSAGE,
)


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    is_free = choice.mode is ToolMode.AUTO
    return (_free_call if is_free else _forced_call)(tool, choice)


def _forced_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    return {
        "type": "tag",
        "begin": f"{CHANNEL}commentary {TO}{tool.name}{_HEAD_ENDS[0]}",
        "content": arguments_tag(tool, choice),
        "end": CALL,
    }


def _free_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """From the name on: what comes before it differs."""
    ends = [{"type": "const_string", "value": end} for end in _HEAD_ENDS]
    head_end = {"type": "or", "elements": ends}
    return {
        "type": "tag",
        "begin": f"{TO}{tool.name}",
        "content": {"type": "sequence", "elements": [head_end, arguments_tag(tool, choice)]},
        "end": CALL,
    }


GPTOSS_CALLS = Messages(
    _call,
    trigger=TO,
    separator=NEXT,
    answer_begin=f"{CHANNEL}final{MESSAGE}",
    tags=GPTOSS.reasoning,
)
