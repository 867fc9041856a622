"""Custom tools and namespaces, in terms of functions.

Chat templates and models know only functions with one name. So the model sees a custom tool as a
function of one string, and a tool in a namespace under a joined name. `output/writer.py` turns the
arguments of a call back into a custom tool's input.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from vinery_serving.core.request import TextGrammar, TextSyntax, Tool

INPUT: Final = "input"  # the only argument of the function that replaces a custom tool
# Anthropic's key for arguments that are no JSON object, in an object with no other key.
INVALID_JSON: Final = "INVALID_JSON"
_NAMESPACE_SEPARATOR: Final = "__"


def custom_tool(name: str, description: str | None, grammar: TextGrammar | None) -> Tool:
    """Return the function that the model sees. With a grammar each call obeys it."""
    parameters = {
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": _input_description(grammar)}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    is_strict = None if grammar is None else True
    return Tool(name, description, parameters, is_strict, is_custom=True, input_grammar=grammar)


def custom_arguments(text: str) -> str:
    """Return the JSON text of a call's arguments for the input `text`."""
    return json.dumps({INPUT: text}, ensure_ascii=False, separators=(",", ":"))


def qualified_name(namespace: str | None, name: str) -> str:
    """Return the name that the model sees, with one separator at the namespace's end."""
    if not namespace:
        return name
    return f"{namespace.removesuffix(_NAMESPACE_SEPARATOR)}{_NAMESPACE_SEPARATOR}{name}"


def namespace_tools(
    namespace: str, description: str | None, tools: Sequence[Tool]
) -> tuple[Tool, ...]:
    """Return the tools as the model sees them. The first also describes the namespace."""
    first = "\n\n".join(filter(None, (description, tools[0].description))) if tools else ""
    return tuple(
        replace(
            tool,
            name=qualified_name(namespace, tool.name),
            description=(first or None) if index == 0 else tool.description,
            own_name=tool.name,
            namespace=namespace,
        )
        for index, tool in enumerate(tools)
    )


class ToolIndex:
    def __init__(self, tools: Sequence[Tool]) -> None:
        self._by_name: defaultdict[str | None, list[str]] = defaultdict(list)
        self._by_namespace: defaultdict[str | None, list[str]] = defaultdict(list)
        self._by_own_name: defaultdict[str | None, list[str]] = defaultdict(list)
        for tool in tools:
            self._by_name[tool.name].append(tool.name)
            self._by_namespace[tool.namespace].append(tool.name)
            self._by_own_name[tool.own_name].append(tool.name)

    def find(self, name: str) -> tuple[str, ...]:
        """Return the qualified names of the tools that a client means by `name`. `name` is, in this
        order: the qualified name of a tool, the name of a namespace, or a tool's own name that only
        one namespace has. Returns () when no tool matches."""
        own = self._by_own_name.get(name, [])
        found = self._by_name.get(name) or self._by_namespace.get(name)
        return tuple(found or (own if len(own) == 1 else ()))


def _input_description(grammar: TextGrammar | None) -> str:
    """Models write better inputs under a grammar when the description contains it."""
    if grammar is None:
        return "The input of the tool, as plain text."
    if grammar.syntax is TextSyntax.REGEX:
        return f"Plain text that this regular expression matches: {grammar.definition}"
    return f"Plain text that fits this Lark grammar:\n{grammar.definition}"
