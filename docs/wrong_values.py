"""The wrong values of parameters, and the sentences of their errors.

The type of a parameter gives most of them. `parameter(..., wrong=...)` adds those of its own
rules, and replaces the sentence of a value that the type gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from vinery_serving.protocols.common.limited import SETTING
from vinery_serving.protocols.common.parameters import Parameter, parameter_of
from vinery_serving.protocols.openapi.schema import Schema, component_schemas

WrongValue = tuple[Any, str]

# Longer texts are not written into a document.
_LONGEST: Final = 1024
_OF_TYPE: Final[Mapping[str, tuple[WrongValue, ...]]] = {
    "boolean": (("yes", "must be true or false"), (1, "must be true or false")),
    "integer": (
        ("one", "must be an integer"),
        (1.5, "must be an integer"),
        (True, "must be an integer"),
    ),
    "number": (("warm", "must be a number"), (True, "must be a number"), ([], "must be a number")),
    "string": ((5, "must be a string"),),
    "array": ((5, "must be an array"), ({}, "must be an array")),
    "object": ((5, "must be an object"), ([], "must be an object")),
}


def wrong_values(
    model: type[BaseModel], *, without: type[BaseModel] | None = None
) -> Iterator[tuple[str, Any, str]]:
    """Yield the name, a wrong value and the message's sentence of each parameter of `model`,
    without those that the model `without` has too."""
    schemas = component_schemas([model])
    properties = schemas[model.__name__]["properties"]
    for name, field in model.model_fields.items():
        described = parameter_of(field)
        base = None if without is None else without.model_fields.get(name)
        if described is None or (base is not None and parameter_of(base) == described):
            continue
        wire_name = field.alias or name
        for value, sentence in _all(properties[wire_name], described, schemas):
            yield wire_name, value, sentence


def _all(
    schema: Schema, described: Parameter, schemas: Mapping[str, Schema]
) -> Iterable[WrongValue]:
    own = [(json.dumps(value), value, sentence) for value, sentence in described.wrong]
    replaced = {text for text, _, _ in own}
    derived = [each for each in _of_schema(schema, schemas) if json.dumps(each[0]) not in replaced]
    return [*derived, *((value, sentence) for _, value, sentence in own)]


def _of_schema(schema: Schema, schemas: Mapping[str, Schema]) -> Iterator[WrongValue]:
    """Yield what the type gives. A union of several types gives nothing."""
    options = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    if len(options) != 1 or options[0].keys().isdisjoint(("type", "$ref")):
        return
    (option,) = options
    if "enum" not in option:
        yield from _OF_TYPE["object" if "$ref" in option else option.get("type", "")]
    yield from _of_numbers(option)
    yield from _of_strings(option)


def _of_numbers(option: Schema) -> Iterator[WrongValue]:
    if "minimum" in option:
        yield option["minimum"] - 1, f"must be at least {_plain(option['minimum'])}"
    if "maximum" in option:
        yield option["maximum"] + 1, f"must be at most {_plain(option['maximum'])}"
    if "exclusiveMinimum" in option:
        yield option["exclusiveMinimum"], f"must be greater than {option['exclusiveMinimum']:g}"
    if "exclusiveMaximum" in option:
        yield option["exclusiveMaximum"], f"must be less than {option['exclusiveMaximum']:g}"


def _of_strings(option: Schema) -> Iterator[WrongValue]:
    if "enum" in option:
        *most, last = [repr(each) for each in option["enum"]]
        yield "no such", f"must be one of {', '.join(most)} or {last}"
    if option.get("minLength") == 1:
        yield "", "must not be empty"
    if "pattern" in option:
        yield "a b", f"must match {option['pattern']}"
    if option.get("maxLength", _LONGEST + 1) <= _LONGEST:
        limit = option["maxLength"]
        yield (
            "a" * (limit + 1),
            f"must have at most {limit} characters, but has {limit + 1}. Send fewer, or ask the "
            f"administrator to raise {option[SETTING]}",
        )


def _plain(number: float) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)
