"""A tool's schema as a list of parameters, for families that write arguments one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from serving.core.request import Tool, ToolChoice, ToolMode

DEFINITIONS: Final = ("$defs", "definitions")
# Keywords of an object's schema that a list of parameters expresses, or that have no effect.
_KNOWN_KEYWORDS: Final = frozenset(
    (
        *("$comment", "$id", "$schema", "title", "description", "default", "examples"),
        *("type", "properties", "required", "additionalProperties", *DEFINITIONS),
    )
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. Its schema is a whole document, with the definitions of the tool's."""

    name: str
    schema: Any
    is_required: bool


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of a tool, in the schema's order. `are_free`: any arguments fit."""

    listed: tuple[Parameter, ...] = ()
    are_free: bool = False


FREE: Final = Parameters(are_free=True)


def is_enforced(tool: Tool, choice: ToolChoice) -> bool:
    """Return whether a call must fit the tool's schema: if the tool is strict, or if the request
    demands a call."""
    return choice.mode is not ToolMode.AUTO or bool(tool.strict)


def parameters_of(tool: Tool) -> Parameters | None:
    """Return the parameters; None if a list of parameters cannot express the schema.

    If the schema lists properties, a call has no others, as in the grammars of JSON schemas.
    """
    if tool.parameters is None:
        return Parameters()
    schema: Mapping[str, Any] = tool.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    is_list = (
        schema.keys() <= _KNOWN_KEYWORDS
        and schema.get("type", "object") == "object"
        and isinstance(properties, Mapping)
        and isinstance(required, list)
        and set(required) <= properties.keys()
    )
    if not is_list:
        return None
    if not properties:
        others = schema.get("additionalProperties")
        if others is False:
            return Parameters()
        return FREE if others in (None, True) else None
    definitions = {word: schema[word] for word in DEFINITIONS if word in schema}
    return Parameters(
        tuple(
            Parameter(
                name,
                {**definitions, **each} if isinstance(each, Mapping) else each,
                name in required,
            )
            for name, each in properties.items()
        )
    )
