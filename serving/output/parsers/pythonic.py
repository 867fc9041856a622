"""Families that write calls in Python (see `pythonic_calls`): Llama and LFM2.

    [get_weather(city="Paris", days=3), get_time()]

The list stands between tags, or alone. Without tags it is a list of calls where it begins with
one of the request's tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.core.request import Tool
from serving.output.lexer import Tag
from serving.output.parsers.base import CallsFamily
from serving.output.pythonic_calls import PythonicCalls


@dataclass(frozen=True, slots=True)
class ListTags:
    """The tags around a list of calls. `end` may be missing in the output; "" is for families
    without one. `is_bare`: the models usually write the list without tags."""

    begin: str
    end: str
    is_bare: bool = False


def pythonic_family(tags: ListTags) -> CallsFamily:
    """A family that differs from others only in its tags."""
    close = Tag(tags.end) if tags.end else None

    def opening(tools: Sequence[Tool]) -> Tag:
        return Tag(tags.begin, *(bare_opening(tool) for tool in tools if tags.is_bare))

    return CallsFamily(
        opening,
        lambda opening, _: PythonicCalls(opening, close=close),
        special_texts=frozenset(filter(None, (tags.begin, tags.end))),
    )


def bare_opening(tool: Tool) -> str:
    """What begins a list of calls without tags."""
    return f"[{tool.name}("
