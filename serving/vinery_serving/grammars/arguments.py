"""The arguments of tool calls: as JSON, or as a list of parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.core.tools import INPUT
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.grammars.grammar.rules import in_json
from vinery_serving.grammars.json_schema.translator import json_tag
from vinery_serving.grammars.texts import text_tag

_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


def _is_enforced(tool: Tool, choice: ToolChoice) -> bool:
    return choice.mode is not ToolMode.AUTO or bool(tool.strict)


def arguments_tag(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """Return a tag of the tool's arguments as JSON. A custom tool has one argument, its input. A
    call that need not fit the tool's schema may have any object. Raises `InvalidGrammar` or
    `UnsupportedParameter`, as `json_tag` does."""
    if tool.input_grammar is not None:
        return text_tag(tool.input_grammar, in_json, before=f'{{"{INPUT}": "', after='"}')
    schema: Any = {"type": "object"}
    if _is_enforced(tool, choice):
        schema = _NO_PARAMETERS if tool.parameters is None else dict(tool.parameters)
    where = f"tools.{tool.name}.parameters"
    return json_tag(schema, param=where, is_strict=bool(tool.strict))


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
    """`schema` is a whole document, with the definitions of the tool's schema."""

    name: str
    schema: Any
    is_required: bool


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of a tool, in the schema's order. `are_free`: any arguments fit."""

    listed: tuple[Parameter, ...] = ()
    are_free: bool = False


FREE: Final = Parameters(are_free=True)


def parameters_of(tool: Tool, choice: ToolChoice) -> Parameters | None:
    """Return the parameters of a call; None if a list of parameters cannot express the schema. If
    the schema lists properties, a call has no others, as in the grammars of JSON schemas."""
    if not _is_enforced(tool, choice):
        return FREE
    if tool.parameters is None:
        return Parameters()
    schema: Mapping[str, Any] = tool.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    is_list = (
        schema.keys() <= _KNOWN_KEYWORDS
        and schema.get("type", "object") == "object"
        and isinstance(properties, Mapping)
        and isinstance(required, list)
        and all(isinstance(name, str) and name in properties for name in required)
    )
    if not is_list:
        return None
    others = schema.get("additionalProperties")
    if not properties and others is not False:
        return FREE if others in (None, True) else None
    always = frozenset(required)
    definitions = {word: schema[word] for word in DEFINITIONS if word in schema}
    listed = []
    for name, each in properties.items():
        document = {**definitions, **each} if isinstance(each, Mapping) else each
        listed.append(Parameter(name, document, name in always))
    return Parameters(tuple(listed))
