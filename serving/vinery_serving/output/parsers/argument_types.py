"""Reads the text of an argument by the schema of its parameter. Families that write arguments
between tags do not mark whether `5` is a number or a text; the tool's schema decides. Only text
that must be a string can be passed on while it grows."""

import json
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import partial
from types import NoneType
from typing import Any, Final

from vinery_serving.core.request import Tool
from vinery_serving.output.parsers.respelling import (
    CONSTANTS,
    python_json,
    quoted,
    refuse,
    respelled,
)

_ALL_TYPES: Final = frozenset(("string", "number", "integer", "boolean", "null", "object", "array"))
_TYPE_NAMES: Final = {
    bool: "boolean",
    NoneType: "null",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
}
MAX_DEPTH: Final = 16  # a schema that refers to itself without end allows any type
_BRACKETS: Final = ("{", "[", "(")
# Parameters are read while an answer streams, so this takes few milliseconds.
_MAX_SCHEMAS: Final = 1000


class Kind(Enum):
    TEXT = "text"  # strings alone
    JSON = "json"  # anything but strings
    EITHER = "either"  # both, or unknown


class ParameterTypes:
    def __init__(self, tools: Sequence[Tool]) -> None:
        self._schemas = {tool.name: tool.parameters or {} for tool in tools}
        self._by_parameter: dict[tuple[str, str], frozenset[str]] = {}

    @property
    def tools(self) -> Collection[str]:
        return self._schemas.keys()

    def names(self, tool: str) -> frozenset[str]:
        properties = self._schemas.get(tool, {}).get("properties")
        return frozenset(properties if isinstance(properties, dict) else ())

    def of(self, tool: str, parameter: str) -> frozenset[str]:
        """Return the JSON types that the parameter takes: all for an unknown parameter."""
        key = (tool, parameter)
        if key not in self._by_parameter:
            document = self._schemas.get(tool, {})
            properties = document.get("properties")
            schema = properties.get(parameter) if isinstance(properties, dict) else None
            self._by_parameter[key] = schema_types(schema, document)
        return self._by_parameter[key]


def value_kind(types: frozenset[str]) -> Kind:
    if "string" not in types:
        return Kind.JSON
    return Kind.TEXT if len(types) == 1 else Kind.EITHER


def schema_types(schema: Any, document: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that `schema`, a part of `document`, allows. Where numbers are
    allowed, integers are too. A schema with too many references and options allows any type."""
    return _types_of(schema, document, {}, 0)


def _types_of(
    schema: Any,
    document: Mapping[str, Any],
    known: dict[tuple[int, int], frozenset[str]],
    depth: int,
) -> frozenset[str]:
    """`known`: by schema and depth."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH or len(known) > _MAX_SCHEMAS:
        return _ALL_TYPES
    key = (id(schema), depth)
    if key not in known:
        types, of = _own_types(schema), partial(_types_of, document=document, known=known)
        for word in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(word), list) and options:
                types &= frozenset().union(*(of(each, depth=depth + 1) for each in options))
        parts = schema.get("allOf")
        for part in parts if isinstance(parts, list) else ():
            types &= of(part, depth=depth + 1)
        if isinstance(schema.get("$ref"), str):
            types &= of(target(document, schema["$ref"]), depth=depth + 1)
        known[key] = types or _ALL_TYPES
    return known[key]


def _own_types(schema: Mapping[str, Any]) -> frozenset[str]:
    if "const" in schema:
        return frozenset((_type_name(schema["const"]),))
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return frozenset(_type_name(value) for value in schema["enum"])
    kinds = schema.get("type")
    listed = kinds if isinstance(kinds, list) else (kinds,)
    types = frozenset(kind for kind in listed if isinstance(kind, str)) & _ALL_TYPES or _ALL_TYPES
    return types | {"integer"} if "number" in types else types


def target(document: Any, reference: str) -> Any:
    """Return the part of `document` that a `$ref` names; None if there is none."""
    found = document
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _type_name(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _TYPE_NAMES.get(type(value), "object")


def argument_json(text: str, types: frozenset[str]) -> str:
    """Return the JSON text of an argument that the model wrote as `text`. JSON stays unchanged.
    Words and literals of Python are translated, because models write them. Text that is no value of
    the types becomes a string."""
    kind = value_kind(types)
    if kind is Kind.TEXT:
        return quoted(text)
    bare = text.strip()
    value, is_json = _parsed(bare)
    if not is_json and (found := _respelled(bare, is_certain=kind is Kind.JSON)) is not None:
        bare, (value, is_json) = found, _parsed(found)
    if kind is Kind.JSON:
        return bare if is_json else quoted(text)
    is_wanted = is_json and not isinstance(value, str) and _type_name(value) in types
    return bare if is_wanted else quoted(text)


def _parsed(text: str) -> tuple[Any, bool]:
    try:
        return json.loads(text, parse_constant=refuse), True
    except (ValueError, RecursionError):
        return None, False


def _respelled(text: str, *, is_certain: bool) -> str | None:
    """The JSON text of a value; None for other text. If the text is surely a value, brackets and
    quotes may be missing."""
    if text[:1] not in _BRACKETS:
        word = text.lower()
        return python_json(word if word in CONSTANTS else text) if is_certain else None
    if (literal := python_json(text)) is not None:
        return literal
    found = respelled(text, has_bare_strings=is_certain)
    if found is None or not (found.is_whole or is_certain):
        return None
    return None if text[found.end :].strip("}]) \n" if is_certain else " \n") else found.text
