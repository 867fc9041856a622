"""Families that call tools in Python (see `pythonic_calls`): Llama and LFM2.

    [get_weather(city="Paris", days=3), get_time()]

The list stands between tags, or alone: then it is a list of calls where it begins with one
of the request's tools.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.constraints.literal_grammar import PYTHON_SPELLING, arguments_grammar
from serving.constraints.shapes import arguments_shape, wrapped_calls_shape
from serving.core.request import Tool, ToolChoice, ToolMode
from serving.output.calls import CallsParser
from serving.output.formats.base import Format, Shape
from serving.output.formats.plain import PlainParser
from serving.output.lexer import Tag
from serving.output.parse_events import Parser
from serving.output.pythonic_calls import PythonicCalls

_SEPARATOR = ", "


class PythonicFormat(Format):
    """A family that differs from others only in its tags. `end` may be missing; "" is for
    families without one."""

    makes_calls = True
    begin: str
    end: str
    # Its models know the tags, but usually write the list alone.
    is_bare = False

    @property
    def special_texts(self) -> frozenset[str]:
        return frozenset(filter(None, (self.begin, self.end)))

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        if not tools:
            return PlainParser()
        opening = Tag(self.begin, *(_bare(tool) for tool in tools if self.is_bare))
        close = Tag(self.end) if self.end else None
        return CallsParser(opening, lambda tag: PythonicCalls(tag, close=close))

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        if self.is_bare and choice.mode is ToolMode.AUTO:
            return _bare_calls_shape(tools, choice, parallel=parallel)
        return wrapped_calls_shape(
            [_call_tag(tool, choice) for tool in tools],
            choice,
            trigger=self.begin,
            parallel=parallel,
            begin="[" if self.is_bare else f"{self.begin}[",
            separator=_SEPARATOR,
            end="]" if self.is_bare else f"]{self.end}",
        )


def _bare(tool: Tool) -> str:
    return f"[{tool.name}("


def _call_tag(tool: Tool, choice: ToolChoice, before: str = "") -> Shape:
    """A call. What Python's grammar cannot say of the arguments JSON's can: in a dictionary
    after two stars."""
    arguments = arguments_grammar(tool, choice, PYTHON_SPELLING)
    stars = "" if arguments else "**"
    return {
        "type": "tag",
        "begin": f"{before}{tool.name}({stars}",
        "content": arguments or arguments_shape(tool, choice),
        "end": ")",
    }


def _bare_calls_shape(tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
    """Free text in which a tool's name in a bracket begins calls. A bracket alone does not:
    texts are full of them."""
    more: Shape = {
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
        "triggers": [_bare(tool) for tool in tools],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": not parallel,
    }
