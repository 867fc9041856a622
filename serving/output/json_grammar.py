"""JSON schemas as grammars of our own, in which blanks have an end.

The engine's own translation allows any number of blanks between any two tokens of JSON,
and a weak model takes that as a way out: it writes blanks until its limit. Here there is
at most one, after a colon or a comma, as in the JSON that models have read most. Numbers
end, too. What is not translated here is left to the engine.

A schema's properties come in its order, and no others, unless it names none. Both are the
engine's rules as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

# Words that say nothing about what is valid.
_NOTES: Final = frozenset(
    (
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "discriminator",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    )
)
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(("properties", "required", "additionalProperties")),
    "array": frozenset(("items", "minItems", "maxItems")),
    "string": frozenset(("minLength", "maxLength")),
    "integer": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "number": frozenset(("minimum",)),
    "boolean": frozenset(),
    "null": frozenset(),
}
# Repetitions are unrolled by the compiler: above this it gets slow.
_MAX_BOUND: Final = 256
# All integers of the grammar are nearer to zero: exact in every client's numbers.
_INTEGER_END: Final = 10**15

_BASICS: Final = r"""
sp ::= " "?
char ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
string ::= "\"" char* "\""
natural ::= "0" | [1-9] [0-9]{0,14}
integer ::= "-"? natural
positive ::= natural ("." [0-9]{1,16})? ([eE] [+-]? [0-9]{1,2})?
number ::= "-"? positive
boolean ::= "true" | "false"
null ::= "null"
value ::= string | number | boolean | null | object | array
object ::= "{" (string ":" sp value ("," sp string ":" sp value)*)? "}"
array ::= "[" (value ("," sp value)*)? "]"
"""


class _Untranslated(Exception):
    """The schema says something that this file has no rule for."""


def json_grammar(schema: Any) -> str | None:
    """The grammar of the values that `schema` allows, in EBNF; None when it says anything
    that is not translated here, or nothing valid."""
    try:
        return _Translation(schema).text()
    except (_Untranslated, RecursionError):
        return None


class _Translation:
    """Collects the rules of one schema. Every sub-schema becomes one rule."""

    def __init__(self, schema: Any) -> None:
        self._document = schema
        self._rules: list[str] = []
        self._by_reference: dict[str, str] = {}

    def text(self) -> str:
        root = self._of(self._document)
        return f"root ::= {root}{_BASICS}{''.join(self._rules)}"

    def _rule(self, body: str) -> str:
        """A new rule with this body; its name."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name} ::= {body}\n")
        return name

    def _of(self, schema: Any) -> str:
        """An expression for the values of a schema: one symbol, or a group."""
        if schema is True:
            return "value"
        if not isinstance(schema, dict):
            raise _Untranslated
        words = {word: schema[word] for word in schema if word not in _NOTES}
        match words:
            case {"$ref": str(reference), **rest} if not rest:
                return self._referred(reference)
            case {"const": constant, **rest} if rest.keys() <= {"type"}:
                return _literal(constant)
            case {"enum": [_, *_] as values, **rest} if rest.keys() <= {"type"}:
                return _either([_literal(each) for each in values])
            case {"anyOf": [_, *_] as options, **rest} if not rest:
                return _either([self._of(option) for option in options])
            case {"oneOf": [_, *_] as options, **rest} if not rest:
                return _either([self._of(option) for option in options])
            case {"allOf": [only], **rest} if not rest:
                return self._of(only)
            case _:
                return self._of_types(words)

    def _of_types(self, words: dict[str, Any]) -> str:
        kinds = words.pop("type", None)
        if kinds is None and not words:
            return "value"
        if kinds is None and words.keys() & {"properties", "additionalProperties"}:
            kinds = "object"
        names = [kinds] if isinstance(kinds, str) else kinds
        if not isinstance(names, list) or not names or any(name not in _WORDS for name in names):
            raise _Untranslated
        if not words.keys() <= frozenset().union(*(_WORDS[name] for name in names)):
            raise _Untranslated
        return _either([self._of_type(name, words) for name in names])

    def _of_type(self, kind: str, words: Mapping[str, Any]) -> str:
        match kind:
            case "object":
                return self._object(words)
            case "array":
                return self._array(words)
            case "string":
                least, most = _bounds(words, "minLength", "maxLength")
                return "string" if (least, most) == (0, None) else _string(least, most)
            case "integer":
                return _integer(words)
            case "number":
                return _number(words)
            case _:
                return kind

    def _referred(self, reference: str) -> str:
        """A rule of its own for each target, so that schemas may contain themselves."""
        known = self._by_reference.get(reference)
        if known is not None:
            return known
        name = self._by_reference[reference] = f"d{len(self._by_reference)}"
        body = self._of(_target(self._document, reference))
        if body in self._by_reference.values():
            raise _Untranslated  # a reference to a reference may run in a circle
        self._rules.append(f"{name} ::= {body}\n")
        return name

    def _array(self, words: Mapping[str, Any]) -> str:
        item = self._of(words.get("items", True))
        least, most = _bounds(words, "minItems", "maxItems")
        if most == 0:
            return '"[]"'
        upper = "" if most is None else most - 1
        items = f'{item} ("," sp {item}){{{max(0, least - 1)},{upper}}}'
        return self._rule(f'"[" {items} "]"' if least else f'"[" ({items})? "]"')

    def _object(self, words: Mapping[str, Any]) -> str:
        properties, others = words.get("properties", {}), words.get("additionalProperties")
        required = words.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise _Untranslated
        if not set(required) <= properties.keys() or not (
            others in (None, False) or not properties
        ):
            raise _Untranslated
        if properties:
            return self._listed(properties, frozenset(required))
        if others is False:
            return '"{}"'
        return self._mapping(self._of(True if others is None else others))

    def _mapping(self, value: str) -> str:
        return self._rule(f'"{{" (string ":" sp {value} ("," sp string ":" sp {value})*)? "}}"')

    def _listed(self, properties: Mapping[str, Any], required: frozenset[str]) -> str:
        """Rules from the last property to the first: each says how the object goes on from
        there, after another property or as its first."""
        after = first = '""'
        for name, schema in reversed(list(properties.items())):
            member = f'{_literal(name)} ":" sp {self._of(schema)}'
            if name in required:
                first = self._rule(f"{member} {after}")
                after = self._rule(f'"," sp {member} {after}')
            else:
                first = self._rule(f"{member} {after} | {first}")
                after = self._rule(f'"," sp {member} {after} | {after}')
        return self._rule(f'"{{" {first} "}}"')


def _either(options: Sequence[str]) -> str:
    return options[0] if len(options) == 1 else f"({' | '.join(options)})"


def _literal(value: Any) -> str:
    """The JSON text of a value as a string of the grammar."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _string(least: int, most: int | None) -> str:
    return rf'("\"" char{{{least},{"" if most is None else most}}} "\"")'


def _integer(words: Mapping[str, Any]) -> str:
    """A range that is wide, or starts at zero, or is so small that it can be listed."""
    if not all(type(bound) is int for word, bound in words.items() if word in _WORDS["integer"]):
        raise _Untranslated
    least = max(
        words.get("minimum", -_INTEGER_END), words.get("exclusiveMinimum", -_INTEGER_END) + 1
    )
    most = min(words.get("maximum", _INTEGER_END), words.get("exclusiveMaximum", _INTEGER_END) - 1)
    if most >= _INTEGER_END - 1 and least == 0:
        return "natural"
    if most >= _INTEGER_END - 1 and least <= 1 - _INTEGER_END:
        return "integer"
    if 0 <= most - least < _MAX_BOUND:
        return _either([_literal(each) for each in range(least, most + 1)])
    raise _Untranslated


def _number(words: Mapping[str, Any]) -> str:
    match words.get("minimum"):
        case None:
            return "number"
        case 0:
            return "positive"
    raise _Untranslated


def _bounds(words: Mapping[str, Any], lower: str, upper: str) -> tuple[int, int | None]:
    least, most = words.get(lower, 0), words.get(upper)
    for bound in (least, 0 if most is None else most):
        if type(bound) is not int or not 0 <= bound <= _MAX_BOUND:
            raise _Untranslated
    if most is not None and most < least:
        raise _Untranslated
    return least, most


def _target(document: Any, reference: str) -> Any:
    """What a reference within the document points at."""
    if not reference.startswith("#"):
        raise _Untranslated
    found = document
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise _Untranslated
        found = found[name]
    return found
