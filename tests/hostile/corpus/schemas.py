"""JSON schemas that are small to send and large to translate, by every name of the field.

Alternatives that double with each level, properties and choices whose pairs are compared, counts
and numbers without end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from tests.hostile.case import CHAT, COMPLETIONS, RESPONSES, Case, num_of, with_fields

Schema = dict[str, Any]
Build = Callable[[int], Schema]

_SIZE: Final = 1 << 18
_TINY: Final = 400  # bytes; the cost does not come from the size
_DIGITS: Final = int("9" * 400)


def schema_cases() -> Iterator[Case]:
    """Each schema by one name of the field; and the worst schemas by all names."""
    for name, (size, build) in SCHEMAS.items():
        yield _case(name, "guided_json", size, build)
    for name in _BY_ALL_NAMES:
        size, build = SCHEMAS[name]
        for entry in _ENTRIES:
            if entry != "guided_json":
                yield _case(name, entry, size, build)
    for keyword in _NUMBERS:
        for entry in ("guided_json", "strict tool"):
            size, build = _fixed(_numbered(keyword))
            yield _case(f"{keyword} of 400 digits", entry, size, build)


# -- Schemas ------------------------------------------------------------------------------


def _branching(depth: int, keyword: str = "anyOf") -> Schema:
    """A constant with 2 to the power of `depth` readings."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    node = {keyword: [{"items": {"$ref": "#/$defs/n"}}, {"items": {"$ref": "#/$defs/n"}}]}
    return {"$defs": {"n": node}, "const": value, "items": {"$ref": "#/$defs/n"}}


def _all_of_choices(size: int) -> Schema:
    choices = [{"number": number} for number in range(num_of(size // 50, 18))]
    return {"allOf": [{"enum": choices} for _ in range(50)]}


def _optional(size: int, **more: Any) -> Schema:
    names = [f"p{number}" for number in range(num_of(size, 28))]
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def _required(size: int) -> Schema:
    names = [f"r{number}" for number in range(num_of(size, 12))]
    return {"type": "object", "required": names, "additionalProperties": True}


def _patterns(size: int) -> Schema:
    patterns = {f"^p{number}.*x$": {"type": "integer"} for number in range(num_of(size, 36))}
    return {"type": "object", "patternProperties": patterns, "minProperties": 2}


def _references(size: int) -> Schema:
    count = num_of(size, 40)
    names = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(count)}
    return {"$defs": {**names, f"d{count}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def _product(size: int) -> Schema:
    """Alternatives of alternatives, whose product grows with the size."""
    pair = {"anyOf": [{"minimum": 1}, {"maximum": 9}, {"multipleOf": 2}]}
    return {"type": "integer", "allOf": [pair for _ in range(num_of(size, 70))]}


def _negations(size: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(60):
        schema = {"not": {"anyOf": [schema, {"type": "integer"}]}}
    return schema


def _nested(size: int) -> Schema:
    schema: Schema = {"type": "string"}
    for at in range(30):
        schema = {"type": "object", "properties": {f"a{at}": schema, f"b{at}": schema}}
        if len(json.dumps(schema)) > size:
            break
    return schema


def _dependent(size: int) -> Schema:
    count = num_of(size, 60)
    schemas = {f"p{at}": {"required": [f"p{at + 1}", f"p{at + 2}"]} for at in range(count)}
    return {"type": "object", "dependentSchemas": schemas}


def _conditions(size: int) -> Schema:
    schema: Schema = {"type": "object"}
    for at in range(20):
        if len(json.dumps(schema)) > size:
            break
        schema = {"if": {"required": [f"p{at}"]}, "then": schema, "else": schema}
    return schema


def _tuple(size: int) -> Schema:
    items = [{"type": ["integer", "string", "null"]} for _ in range(num_of(size, 40))]
    return {"type": "array", "prefixItems": items, "minItems": 1, "uniqueItems": True}


def _numbered(keyword: str) -> Schema:
    kind = {"minItems": "array", "maxItems": "array"}.get(keyword, "number")
    return {"type": kind, keyword: _DIGITS}


def _fixed(schema: Schema) -> tuple[int, Build]:
    return _TINY, lambda size: schema


_NUMBERS: Final = (
    "minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum", "minItems",
    "maxItems",
)  # fmt: skip
SCHEMAS: Final[Mapping[str, tuple[int, Build]]] = {
    **{
        f"{keyword} of depth {depth}": _fixed(_branching(depth, keyword))
        for keyword in ("anyOf", "oneOf", "allOf")
        for depth in (16, 60)
    },
    "many choices": (
        _SIZE,
        lambda size: {"enum": [f"choice {at}" for at in range(num_of(size, 16))]},
    ),
    "many objects to choose": (
        _SIZE,
        lambda size: {"enum": [{"a": at, "b": [at]} for at in range(num_of(size, 28))]},
    ),
    "all of many choices": (_SIZE, _all_of_choices),
    "many optional properties": (_SIZE, _optional),
    "two of many optional properties": (_SIZE, partial(_optional, minProperties=2)),
    "many properties with a pattern of names": (
        _SIZE,
        partial(_optional, propertyNames={"pattern": "^p[0-9]+$"}),
    ),
    "many required properties": (_SIZE, _required),
    "many patterns of properties": (_SIZE, _patterns),
    "a chain of references": (_SIZE, _references),
    "a ring of references": _fixed(
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    ),
    "a product of anyOf": (_SIZE, _product),
    "many anyOf": (
        _SIZE,
        lambda size: {"anyOf": [{"const": at} for at in range(num_of(size, 18))]},
    ),
    "nested negations": (_TINY, _negations),
    "nested properties that double": (_SIZE, _nested),
    "dependent schemas": (_SIZE, _dependent),
    "nested conditions": (_SIZE, _conditions),
    "a long tuple": (_SIZE, _tuple),
    "a long description": (_SIZE, lambda size: {"type": "string", "description": "a" * size}),
    "a huge minLength": _fixed({"type": "string", "minLength": 10**9}),
    "a huge minItems": _fixed({"type": "array", "minItems": 10**9, "items": {"type": "integer"}}),
    "a huge minProperties": _fixed({"type": "object", "minProperties": 10**9}),
    "a huge range": _fixed({"type": "integer", "minimum": -(10**300), "maximum": 10**300}),
    "a wild pattern": _fixed({"type": "string", "pattern": "^((a+)+)+$"}),
    "no schema at all": _fixed({"type": "nothing", "$ref": 5, "items": "x", "enum": {}}),
    "an impossible schema": _fixed({"allOf": [{"type": "string"}, {"type": "integer"}]}),
}
_BY_ALL_NAMES: Final = (
    "anyOf of depth 60",
    "many choices",
    "two of many optional properties",
    "all of many choices",
    "many required properties",
)


# -- Names of the field -------------------------------------------------------------------


def _case(name: str, entry: str, size: int, build: Build) -> Case:
    path, param, put = _ENTRIES[entry]

    def body(size: int) -> bytes:
        return json.dumps(with_fields(path, **put(build(size)))).encode()

    return Case(f"schema: {name}, by {entry}", "schema", path, body, param, size)


def _response_format(schema: Schema, *, strict: bool) -> dict[str, Any]:
    described = {"name": "a", "schema": schema, "strict": strict}
    return {"response_format": {"type": "json_schema", "json_schema": described}}


def _text_format(schema: Schema) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}


def _tool(schema: Schema, *, strict: bool) -> dict[str, Any]:
    function = {"name": "f", "parameters": {"properties": {"a": schema}}, "strict": strict}
    tool = {"type": "function", "function": function}
    return {"tools": [tool], "tool_choice": "required"}


def _tag(schema: Schema) -> dict[str, Any]:
    return {"structural_tag": {"type": "json_schema", "json_schema": schema}}


_ENTRIES: Final[Mapping[str, tuple[str, str, Callable[[Schema], dict[str, Any]]]]] = {
    "guided_json": (CHAT, "guided_json", lambda schema: {"guided_json": schema}),
    "its text": (CHAT, "guided_json", lambda schema: {"guided_json": json.dumps(schema)}),
    "structured_outputs": (
        COMPLETIONS,
        "structured_outputs",
        lambda schema: {"structured_outputs": {"json": schema}},
    ),
    "response_format": (CHAT, "response_format", partial(_response_format, strict=False)),
    "strict response_format": (CHAT, "response_format", partial(_response_format, strict=True)),
    "text.format": (RESPONSES, "text", _text_format),
    "strict tool": (CHAT, "tools", partial(_tool, strict=True)),
    "tool": (CHAT, "tools", partial(_tool, strict=False)),
    "structural_tag": (CHAT, "structural_tag", _tag),
}
