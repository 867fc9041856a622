"""Families that write calls in Python (see the parser `pythonic`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.constraints.arguments import PYTHON_SPELLING, spelled_arguments_tag
from serving.constraints.ebnf import StructuralTag
from serving.constraints.families.base import Calls
from serving.constraints.tags import arguments_tag
from serving.core.request import Tool, ToolChoice, ToolMode
from serving.output.parsers.pythonic import ListTags, bare_opening

_SEPARATOR = ", "


@dataclass(frozen=True)
class BareCalls(Calls):
    """A family whose models usually write the list of calls without tags."""

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        if choice.mode is ToolMode.AUTO:
            return _bare_calls_tag(tools, choice, parallel=parallel)
        return super().calls(tools, choice, parallel=parallel)


def pythonic_calls(tags: ListTags) -> Calls:
    """A family that differs from others only in its tags."""
    if tags.is_bare:
        return BareCalls(_call_tag, tags.begin, _SEPARATOR, begin="[", end="]")
    return Calls(_call_tag, tags.begin, _SEPARATOR, begin=f"{tags.begin}[", end=f"]{tags.end}")


def _call_tag(tool: Tool, choice: ToolChoice, before: str = "") -> StructuralTag:
    """A call. What Python's grammar cannot say of the arguments JSON's can: in a dictionary
    after two stars."""
    arguments = spelled_arguments_tag(tool, choice, PYTHON_SPELLING)
    stars = "" if arguments else "**"
    return {
        "type": "tag",
        "begin": f"{before}{tool.name}({stars}",
        "content": arguments or arguments_tag(tool, choice),
        "end": ")",
    }


def _bare_calls_tag(tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
    """Free text in which a tool's name in a bracket begins calls. A bracket alone does not:
    texts are full of them."""
    more: StructuralTag = {
        "type": "tags_with_separator",
        "tags": [_call_tag(tool, choice, _SEPARATOR) for tool in tools],
        "separator": "",
        "at_least_one": False,
        "stop_after_first": False,
    }
    tags = []
    for tool in tools:
        call = _call_tag(tool, choice, "[")
        parenthesis = {"type": "const_string", "value": ")"}
        elements = [call["content"], parenthesis, *([more] if parallel else [])]
        tags.append(
            {
                "type": "tag",
                "begin": call["begin"],
                "content": {"type": "sequence", "elements": elements},
                "end": "]",
            }
        )
    return {
        "type": "triggered_tags",
        "triggers": [bare_opening(tool) for tool in tools],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": not parallel,
    }
