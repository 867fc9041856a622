"""The names of called tools, as the client knows them: a tool of a namespace has two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from serving.core.request import Tool

# The members of a call that name its tool, by the name that the model knows it by.
Names = Mapping[str, Mapping[str, str]]


def names_of(tools: Iterable[Tool]) -> Names:
    """Those of the tools in namespaces; any other tool has one name."""
    return {
        tool.name: {"name": tool.own_name, "namespace": tool.namespace}
        for tool in tools
        if tool.own_name is not None and tool.namespace is not None
    }


def named(name: str, names: Names) -> Mapping[str, str]:
    """The members of a call that name its tool."""
    return names.get(name) or {"name": name}
