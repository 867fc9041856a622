"""Tools in namespaces, as agents group those of each of their servers.

Templates and models know no such groups: towards them a tool's name says its namespace, too.
The client gets both apart again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from serving.core.request import Tool

_BETWEEN: Final = "__"


def qualified(namespace: str | None, name: str) -> str:
    """What the model calls a tool. Many namespaces end with the separator already."""
    if not namespace:
        return name
    return f"{namespace.removesuffix(_BETWEEN)}{_BETWEEN}{name}"


def namespace_tools(
    namespace: str, description: str | None, tools: Sequence[Tool]
) -> tuple[Tool, ...]:
    """The tools of a namespace as the model is shown them: the first one tells what the
    namespace is."""
    return tuple(
        replace(
            tool,
            name=qualified(namespace, tool.name),
            description=_joined(description, tool.description) if at == 0 else tool.description,
            own_name=tool.name,
            namespace=namespace,
        )
        for at, tool in enumerate(tools)
    )


def found(name: str, tools: Sequence[Tool]) -> tuple[str, ...]:
    """The tools that a client means by a name: that of a tool as the model knows it, of a
    whole namespace, or of a tool in just one namespace. None: there is no such tool."""
    for meant in (
        [tool.name for tool in tools if tool.name == name],
        [tool.name for tool in tools if tool.namespace == name],
    ):
        if meant:
            return tuple(meant)
    alike = [tool.name for tool in tools if tool.own_name == name]
    return tuple(alike) if len(alike) == 1 else ()


def _joined(*descriptions: str | None) -> str | None:
    return "\n\n".join(filter(None, descriptions)) or None
