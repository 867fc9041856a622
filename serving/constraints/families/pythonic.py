"""The calls of families that write them in Python (see the parser `pythonic`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.constraints.arguments import PYTHON_NOTATION, arguments_tag, notated_arguments_tag
from serving.constraints.families.base import Calls, calls_in_text, tag
from serving.constraints.grammar.ebnf import StructuralTag
from serving.core.request import Tool, ToolChoice, ToolMode
from serving.output.parsers.pythonic import (
    LFM2_TAGS,
    LLAMA3_TAGS,
    LLAMA4_TAGS,
    ListTags,
    bare_opening,
)

_SEPARATOR = ", "


@dataclass(frozen=True)
class _BareCalls(Calls):
    """A family whose models usually write the list of calls without tags."""

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
        if choice.mode is ToolMode.AUTO:
            return _bare_calls_tag(tools, choice, parallel=parallel)
        return super().calls(tools, choice, parallel=parallel)


def _calls(tags: ListTags) -> Calls:
    """A family that differs from others only in its tags."""
    if tags.is_bare:
        return _BareCalls(_call_tag, tags.begin, _SEPARATOR, begin="[", end="]")
    return Calls(_call_tag, tags.begin, _SEPARATOR, begin=f"{tags.begin}[", end=f"]{tags.end}")


def _call_tag(tool: Tool, choice: ToolChoice, before: str = "") -> StructuralTag:
    """A call. Where a grammar in Python's notation cannot enforce the schema, the arguments are
    JSON: a dictionary after two stars."""
    arguments = notated_arguments_tag(tool, choice, PYTHON_NOTATION)
    stars = "" if arguments else "**"
    return tag(f"{before}{tool.name}({stars}", arguments or arguments_tag(tool, choice), ")")


def _bare_calls_tag(tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuralTag:
    """Free text in which a tool's name in a bracket begins calls. A bracket alone does not: it
    is common in text."""
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
        tags.append(tag(call["begin"], {"type": "sequence", "elements": elements}, "]"))
    return calls_in_text([bare_opening(tool) for tool in tools], tags, is_one=not parallel)


LLAMA3_PYTHONIC_CALLS = _calls(LLAMA3_TAGS)
LLAMA4_PYTHONIC_CALLS = _calls(LLAMA4_TAGS)
LFM2_CALLS = _calls(LFM2_TAGS)
