"""A tool's schema as a list of parameters, for families that write arguments one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from serving.core.request import Tool, ToolChoice, ToolMode

DEFINITIONS: Final = ("$defs", "definitions")
# Words of an object's schema that a list of parameters can say, or that say nothing.
_KNOWN_WORDS: Final = frozenset(
    (
        "$comment",
        "$id",
        "$schema",
        "additionalProperties",
        "default",
        "description",
        "examples",
        "properties",
        "required",
        "title",
        "type",
        *DEFINITIONS,
    )
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. Its schema is a document of its own: definitions travel with it."""

    name: str
    schema: Any
    is_required: bool


@dataclass(frozen=True, slots=True)
class Parameters:
    """All of a tool, in the schema's order. `are_free`: any others are as good."""

    listed: tuple[Parameter, ...] = ()
    are_free: bool = False


FREE: Final = Parameters(are_free=True)


def is_held(tool: Tool, choice: ToolChoice) -> bool:
    """Whether a call must fit the schema: all do but free calls of a tool that is not strict."""
    return choice.mode is not ToolMode.AUTO or bool(tool.strict)


def parameters_of(tool: Tool) -> Parameters | None:
    """What the tool takes. None where its schema says more than a list of parameters can.

    Where properties are listed others are not written, whatever the schema says of them: that
    is the engine's rule for JSON, too.
    """
    if tool.parameters is None:
        return Parameters()
    schema: Mapping[str, Any] = tool.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    is_plain = (
        schema.keys() <= _KNOWN_WORDS
        and schema.get("type", "object") == "object"
        and isinstance(properties, Mapping)
        and isinstance(required, list)
        and set(required) <= properties.keys()
    )
    if not is_plain:
        return None
    if not properties:
        return _without_properties(schema.get("additionalProperties"))
    definitions = {word: schema[word] for word in DEFINITIONS if word in schema}
    return Parameters(
        tuple(
            Parameter(name, _document(each, definitions), name in required)
            for name, each in properties.items()
        )
    )


def _without_properties(others: Any) -> Parameters | None:
    if others is False:
        return Parameters()
    return FREE if others in (None, True) else None


def _document(schema: Any, definitions: Mapping[str, Any]) -> Any:
    return {**definitions, **schema} if isinstance(schema, Mapping) else schema
