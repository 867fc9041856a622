"""Families whose arguments stand between tags (see `tagged_call`)."""

from __future__ import annotations

from serving.output.parsers.base import CallsFamily
from serving.output.tagged_call import TaggedCall, TagSyntax
from serving.output.typed import ParameterTypes


def tagged_family(syntax: TagSyntax, *special_texts: str) -> CallsFamily:
    """A family that differs from others only in its tags."""
    return CallsFamily(
        syntax.opening,
        lambda opening, tools: TaggedCall(syntax, ParameterTypes(tools), opening),
        special_texts=frozenset(special_texts),
    )
