"""The keywords of JSON Schema (2020-12, and draft 7 where it differs): what they must look
like, and which of them no grammar of ours can hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from serving.constraints.schema import formats
from serving.constraints.schema.pattern import BadPattern, IrregularPattern, found_in

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")

# Words that say nothing about what is valid.
NOTES: Final = frozenset(
    (
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    )
)

Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A schema inside the document. Places are equal when they are the same."""

    steps: Steps
    schema: Any = field(compare=False)

    def at(self, *steps: str | int) -> Place:
        """What lies further inside."""
        found = self.schema
        for step in steps:
            found = found[step]
        return Place((*self.steps, *steps), found)

    @property
    def words(self) -> Mapping[str, Any]:
        """Its keywords; a boolean has none."""
        return self.schema if isinstance(self.schema, dict) else {}


class SchemaError(Exception):
    """The schema is wrong, or asks for what cannot be held. `path` says where, as the end
    of a field's name: `.properties.age.not`."""

    def __init__(self, steps: Steps, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = "".join(_step(step) for step in steps)


class Unenforceable(SchemaError):
    """The schema is right, but a grammar cannot hold a model to this part."""


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    is_plain = step.replace("$", "").replace("_", "").isalnum()
    return f".{step}" if is_plain else f"[{json.dumps(step, ensure_ascii=False)}]"


def check(document: Any) -> list[Unenforceable]:
    """Look at every schema of the document: what in it cannot be held, in its order.

    Raises `SchemaError` for what is no schema.
    """
    found = []
    places = [Place((), document)]
    while places:
        place = places.pop()
        if isinstance(place.schema, bool):
            continue
        if not isinstance(place.schema, dict):
            raise SchemaError(place.steps, "must be an object or a boolean")
        found += [Unenforceable((*place.steps, word), why) for word, why in _unheld(place)]
        places += reversed(list(_inside(place)))
    return found


def _unheld(place: Place) -> Iterator[tuple[str, str]]:
    for word, value in place.words.items():
        if (must := _FORMS.get(word)) is not None and not must.is_met(value):
            raise SchemaError((*place.steps, word), f"must be {must.sentence}")
        if (reason := _UNHELD.get(word)) is not None and not _is_trivial(word, place.words):
            yield word, reason
        if word in ("pattern", "patternProperties"):
            yield from _irregular(place, word, value)
        if word == "format" and value in formats.UNHELD:
            yield word, f"no grammar has the format {value}"


def _irregular(place: Place, word: str, value: Any) -> Iterator[tuple[str, str]]:
    for pattern in [value] if word == "pattern" else value:
        try:
            found_in(pattern)
        except BadPattern as error:
            reason = f"is no regular expression: {error}"
            raise SchemaError((*place.steps, word), reason) from None
        except IrregularPattern as error:
            yield word, str(error)


def _is_trivial(word: str, words: Mapping[str, Any]) -> bool:
    """Whether a keyword demands nothing, here, that is not held anyway."""
    match word:
        case "uniqueItems":
            return words[word] is False or words.get("maxItems", 2) <= 1
        case "unevaluatedProperties" | "unevaluatedItems":
            return words[word] is True
        case "then" | "else":
            return "if" not in words
        case "if":
            return not words.keys() & {"then", "else"}
        case "minContains" | "maxContains":
            return "contains" not in words
        case "dependentRequired" | "dependentSchemas" | "dependencies":
            return not words[word]
        case _:
            return False


def _inside(place: Place) -> Iterator[Place]:
    for word, value in place.words.items():
        if word in _SCHEMAS:
            yield place.at(word)
        elif word in _LISTS or (word == "items" and isinstance(value, list)):
            yield from (place.at(word, index) for index in range(len(value)))
        elif word == "items":
            yield place.at(word)
        elif word in _MAPS:
            yield from (place.at(word, name) for name in value)


_SCHEMAS: Final = frozenset(("additionalProperties", "additionalItems", "propertyNames"))
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))

# Keywords that demand what no context-free grammar of tolerable size says.
_UNHELD: Final[Mapping[str, str]] = {
    "not": "a grammar cannot leave out what another schema allows",
    "if": "a grammar cannot make one part depend on another",
    "then": "a grammar cannot make one part depend on another",
    "else": "a grammar cannot make one part depend on another",
    "dependentRequired": "a grammar cannot make one property depend on another",
    "dependentSchemas": "a grammar cannot make one property depend on another",
    "dependencies": "a grammar cannot make one property depend on another",
    "uniqueItems": "a grammar does not remember the items before",
    "contains": "a grammar does not count the items that fit",
    "minContains": "a grammar does not count the items that fit",
    "maxContains": "a grammar does not count the items that fit",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items",
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
}


@dataclass(frozen=True, slots=True)
class _Form:
    sentence: str
    is_met: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_type(value: Any) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in TYPES for kind in kinds)


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_NUMBER: Final = _Form("a number", _is_number)
_COUNT: Final = _Form("an integer from 0", _is_count)
_OBJECT: Final = _Form("an object", lambda value: isinstance(value, dict))
_SOME: Final = _Form(
    "an array that is not empty", lambda value: isinstance(value, list) and value != []
)
_STRING: Final = _Form("a string", lambda value: isinstance(value, str))
_FORMS: Final[Mapping[str, _Form]] = {
    "type": _Form(f"one of {', '.join(TYPES)}, or an array of these", _is_type),
    "enum": _SOME,
    "allOf": _SOME,
    "anyOf": _SOME,
    "oneOf": _SOME,
    "prefixItems": _SOME,
    "properties": _OBJECT,
    "patternProperties": _OBJECT,
    "$defs": _OBJECT,
    "definitions": _OBJECT,
    "dependentRequired": _OBJECT,
    "dependentSchemas": _OBJECT,
    "dependencies": _OBJECT,
    "required": _Form("an array of strings", _are_strings),
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "multipleOf": _Form("a number above 0", lambda value: _is_number(value) and value > 0),
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "minProperties": _COUNT,
    "maxProperties": _COUNT,
    "uniqueItems": _Form("true or false", lambda value: isinstance(value, bool)),
    "pattern": _STRING,
    "format": _STRING,
    "$ref": _STRING,
}
