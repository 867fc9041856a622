"""The calls and answers of Muse Glimmer as messages (see the parser)."""

from __future__ import annotations

from serving.constraints.ebnf import StructuralTag
from serving.constraints.families.base import Messages
from serving.constraints.families.tagged import call_tag
from serving.core.request import Tool, ToolChoice, ToolMode
from serving.output.parsers.messages import MESSAGE
from serving.output.parsers.onyx import ONYX, SYNTAX


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """A forced call begins with the head of its message."""
    tag = call_tag(SYNTAX, tool, choice)
    if choice.mode is ToolMode.AUTO:
        return tag
    return {**tag, "begin": f" to={tool.name}{MESSAGE}{tag['begin']}"}


ONYX_CALLS = Messages(
    _call,
    trigger=SYNTAX.opening.text,
    separator=ONYX.reasoning.closing,
    answer_begin=f" to=user{MESSAGE}",
    tags=ONYX.reasoning,
)
