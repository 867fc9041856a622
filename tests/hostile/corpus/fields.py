"""Every field of every body in the OpenAPI document, with hostile values of each.

The document is read, not copied: a new field has its cases at once. Values of a wrong type and
beside a border, and fields of fields: tests/contract/fuzzing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.hostile.case import BODIES, DETOKENIZE, HOLE, TOKENIZE, Body, Case, filled
from tests.hostile.corpus import values
from tests.hostile.corpus.values import Text, fixed

Schema = Mapping[str, Any]

_REFERENCE: Final = "#/components/schemas/"
# A body of a tokenizer has only one of these fields.
_SOURCES: Final = ("messages", "prompt", "text")
FIELD_SIZE: Final = 1 << 16


@dataclass(frozen=True)
class Field:
    """A field of the body that a path reads, with the accepted JSON types."""

    path: str
    name: str
    types: frozenset[str]

    def body(self, text: Text) -> Body:
        """The smallest valid body with this value of the field."""
        is_source = self.path in (TOKENIZE, DETOKENIZE) and self.name in _SOURCES
        dropped = _SOURCES if is_source else ()
        kept = {name: each for name, each in BODIES[self.path].items() if name not in dropped}
        return filled({**kept, self.name: HOLE}, text)


def fields(document: Mapping[str, Any]) -> Iterator[Field]:
    """All fields of all paths with a body, of the first tree."""
    schemas: Mapping[str, Schema] = document["components"]["schemas"]
    for path in BODIES:
        content = document["paths"][path]["post"]["requestBody"]["content"]
        found: defaultdict[str, set[str]] = defaultdict(set)
        for part in _parts(content["application/json"]["schema"], schemas):
            for name, schema in part.get("properties", {}).items():
                types = (str(each["type"]) for each in _parts(schema, schemas) if "type" in each)
                found[name].update(types)
        for name, accepted in found.items():
            yield Field(path, name, frozenset(accepted))


def _parts(schema: Schema, schemas: Mapping[str, Schema]) -> Iterator[Schema]:
    """A schema, and those that it is made of."""
    reference = schema.get("$ref")
    if reference is not None:
        yield from _parts(schemas[reference.removeprefix(_REFERENCE)], schemas)
        return
    yield schema
    for part in (*schema.get("allOf", ()), *schema.get("anyOf", ())):
        yield from _parts(part, schemas)


def field_cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """The hostile values of each field. A field of an earlier body gets no values again."""
    seen = set()
    for number, field in enumerate(fields(document)):
        mark = field.name, field.types
        if mark in seen:
            continue
        seen.add(mark)
        for kind, name, text in _values_of(field, number):
            title = f"{field.path} {field.name}: {name}"
            body = field.body(text)
            yield Case(title, kind, field.path, body, param=field.name, size=FIELD_SIZE)


def _values_of(field: Field, at: int) -> Iterator[tuple[str, str, Text]]:
    """The kind, name and text of each hostile value. A field gets one number, one text and one
    large value of another type; the next field gets the next."""
    odd = list(values.LARGE)[at % len(values.LARGE)]
    for name, (kind, large) in values.LARGE.items():
        if kind in field.types or name == odd:
            yield "field: large", name, large
    for name, text in (values.number(at), values.unicode_text(at)):
        yield "field: number or text", name, fixed(text)
    yield "field: twice", "twice", fixed(f"null, {json.dumps(field.name)}: null")
