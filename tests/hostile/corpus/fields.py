"""Every field of every body in the OpenAPI document, with hostile values of each.

The document is walked, not copied: a new field has its cases at once. A nested field gets the
smallest body around it that the document calls valid.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.hostile.case import BODIES, DETOKENIZE, HOLE, TOKENIZE, Case, filled
from tests.hostile.corpus import values
from tests.hostile.corpus.values import Text, fixed

Schema = Mapping[str, Any]

_REFERENCE: Final = "#/components/schemas/"
# No body nests further, except by a recursive schema.
_MOST_STEPS: Final = 7
# A body has only one of these fields.
_SOURCES: Final = ("messages", "prompt", "text")
FIELD_SIZE: Final = 1 << 16
_LARGE_BORDER: Final = 1 << 18


@dataclass(frozen=True)
class Field:
    """A field of the body that a path reads. `wrap` puts a value into such a body, and `owner` is
    the schema of the field."""

    path: str
    name: str  # as an error names it, with [0] for entries
    owner: str
    options: Sequence[Schema]
    wrap: Callable[[Any], Any]

    @property
    def types(self) -> frozenset[str]:
        """The accepted JSON types."""
        return frozenset(str(each["type"]) for each in self.options if "type" in each) | {
            _type_of(value) for each in self.options for value in each.get("enum", ())
        }

    @property
    def top(self) -> str:
        """The body's field that contains this field."""
        return self.name.partition(".")[0].partition("[")[0]


def fields(document: Mapping[str, Any]) -> Iterator[Field]:
    """All fields of all paths with a body, of the first tree."""
    schemas: Mapping[str, Schema] = document["components"]["schemas"]
    for path, base in BODIES.items():
        content = document["paths"][path]["post"]["requestBody"]["content"]
        schema = content["application/json"]["schema"]
        yield from _Walk(path, base, schemas).body(schema)


def field_cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """The hostile values of each field. A field of an earlier body gets no values again."""
    seen: set[tuple[str, str]] = set()
    named: Counter[tuple[str, str]] = Counter()
    for number, field in enumerate(fields(document)):
        named[field.path, field.name] += 1
        form = named[field.path, field.name]  # of the object, where several have the field
        mark = (field.name, json.dumps(field.options, sort_keys=True))
        if mark in seen:
            continue
        seen.add(mark)
        for kind, name, text in _values_of(field, number):
            yield Case(
                name=f"{field.path} {field.name}{f' ({form})' * (form > 1)}: {name}",
                kind=kind,
                path=field.path,
                body=filled(field.wrap(HOLE), text),
                param=field.top,
                size=FIELD_SIZE,
            )


def _values_of(field: Field, at: int) -> Iterator[tuple[str, str, Text]]:
    """The kind, name and text of each hostile value. A field gets one number, one text and one
    large value of another type; the next field gets the next."""
    odd = list(values.LARGE)[at % len(values.LARGE)]
    for name, (kind, large) in values.LARGE.items():
        if kind in field.types or name == odd:
            yield "field: large", name, large
    wrong = values.wrong_types(field.types)
    if wrong:
        name, text = wrong[at % len(wrong)]
        yield "field: wrong type", name, fixed(text)
    for name, text in values.borders(field.options):
        if len(text) <= _LARGE_BORDER or not field.owner:
            yield "field: border", name, fixed(text)
    for name, text in (values.number(at), values.unicode_text(at)):
        yield "field: number or text", name, fixed(text)
    if not field.name.endswith("]"):
        key = json.dumps(field.name.rpartition(".")[2])
        yield "field: twice", "twice", fixed(f"null, {key}: null")


@dataclass(frozen=True)
class _Walk:
    """Through the schema of one body. Each schema of the components is entered once."""

    path: str
    base: Mapping[str, Any]
    schemas: Mapping[str, Schema]

    def body(self, schema: Schema) -> Iterator[Field]:
        entered: set[str] = set()

        def wrap(value: Any) -> Any:
            own = set(value) & set(_SOURCES)
            is_tokenizer = self.path in (TOKENIZE, DETOKENIZE)
            dropped = _SOURCES if own and is_tokenizer else ()
            kept = {name: each for name, each in self.base.items() if name not in dropped}
            return {**kept, **value}

        yield from self._members(schema, "", wrap, entered, 0)

    def _members(
        self, schema: Schema, prefix: str, wrap: Callable[[Any], Any], entered: set[str], steps: int
    ) -> Iterator[Field]:
        """The fields of objects of this schema, whose values `wrap` puts into a body."""
        for option in self._options(schema, entered):
            least = {} if not prefix else self._example(option)
            for name, inner in option.get("properties", {}).items():
                path = f"{prefix}.{name}" if prefix else name
                field = Field(
                    self.path, path, prefix, self._options(inner, None), _nested(wrap, least, name)
                )
                yield field
                if steps < _MOST_STEPS:
                    yield from self._inside(inner, field, entered, steps + 1)

    def _inside(
        self, schema: Schema, field: Field, entered: set[str], steps: int
    ) -> Iterator[Field]:
        """The fields of the objects in a field, and in the entries of its arrays."""
        yield from self._members(schema, field.name, field.wrap, entered, steps)
        for option in self._options(schema, None):
            if "items" in option:
                entries = Field(
                    field.path, f"{field.name}[0]", field.owner, [], _listed(field.wrap)
                )
                yield from self._inside(option["items"], entries, entered, steps)

    def _options(self, schema: Schema, entered: set[str] | None) -> list[Schema]:
        """The alternatives of a schema, with what all of them share; without null. Leaves out
        the components that were entered before."""
        reference = schema.get("$ref")
        if reference is not None:
            name = reference.removeprefix(_REFERENCE)
            if entered is not None:
                if name in entered:
                    return []
                entered.add(name)
            return self._options(self.schemas[name], entered)
        own = {key: value for key, value in schema.items() if key not in ("anyOf", "allOf")}
        found: list[Schema] = [own]
        for part in schema.get("allOf", ()):
            found = [_joined(a, b) for b in self._options(part, entered) for a in found]
        options = [
            option
            for part in schema.get("anyOf", ())
            if set(part) - {"required", "properties"} or "type" in part.get("properties", {})
            for option in self._options(part, entered)
        ]
        if options:
            found = [_joined(a, b) for b in options for a in found]
        return [option for option in found if option.get("type") != "null"]

    def _example(self, schema: Schema) -> Any:
        """The smallest valid value."""
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        match schema.get("type"):
            case "object":
                return {
                    name: self._example(self._options(schema["properties"][name], None)[0])
                    for name in schema.get("required", ())
                    if name in schema.get("properties", {})
                }
            case "array":
                return []
            case "boolean":
                return True
            case "integer" | "number":
                return schema.get("minimum", 1)
            case _:
                return "a"


def _joined(one: Schema, other: Schema) -> Schema:
    """Both schemas at once."""
    return {
        **one,
        **other,
        "properties": {**other.get("properties", {}), **one.get("properties", {})},
        "required": [*other.get("required", ()), *one.get("required", ())],
    }


def _nested(wrap: Callable[[Any], Any], least: Any, name: str) -> Callable[[Any], Any]:
    return lambda value: wrap({**least, name: value})


def _listed(wrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: wrap([value])


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "null"
