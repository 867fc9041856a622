"""The schemas inside a JSON Schema document, and the errors that name them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vinery_serving.core.errors import GrammarTooLarge, InvalidGrammar, InvalidRequest
from vinery_serving.grammars.grammar.languages import ANYTHING, Language, NotRegular
from vinery_serving.grammars.grammar.patterns import search_language

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")

Steps = tuple[str | int, ...]  # a JSON pointer, as keys and indexes from the root of the document


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A schema inside a document. Nodes are equal if they have the same position."""

    steps: Steps
    schema: Any = field(compare=False)

    def at(self, *steps: str | int) -> SchemaNode:
        found = self.schema
        for step in steps:
            found = found[step]
        return SchemaNode((*self.steps, *steps), found)

    @property
    def keywords(self) -> Mapping[str, Any]:
        return self.schema if isinstance(self.schema, dict) else {}

    @property
    def is_free(self) -> bool:
        """Whether any value fits because the schema has no keyword."""
        return self.schema in (True, {})

    @property
    def num_listed(self) -> int:
        items = self.keywords.get("items")
        return len(items if isinstance(items, list) else self.keywords.get("prefixItems", ()))

    def further_items(self) -> SchemaNode | None:
        is_draft_7 = isinstance(self.keywords.get("items"), list)
        word = "additionalItems" if is_draft_7 else "items"
        return self.at(word) if word in self.keywords else None

    def item(self, index: int) -> SchemaNode | None:
        if index >= self.num_listed:
            return self.further_items()
        word = "items" if isinstance(self.keywords.get("items"), list) else "prefixItems"
        return self.at(word, index)


class SchemaError(Exception):
    """A schema that is invalid or cannot be translated. `path` is the JSON pointer in the form that
    follows a field's name: `.properties.age.not`."""

    refusal: type[InvalidRequest] = InvalidGrammar

    def __init__(self, steps: Steps, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = "".join(_step(step) for step in steps)


class Untranslatable(SchemaError):
    """A schema that is too large, or valid in a way that is not supported."""

    refusal = GrammarTooLarge


class Unenforceable(SchemaError):
    """A valid keyword that a grammar cannot enforce."""


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    is_plain = step.replace("$", "").replace("_", "").isalnum()
    return f".{step}" if is_plain else f"[{json.dumps(step, ensure_ascii=False)}]"


def canonical(value: Any) -> str:
    """Return a text that equal JSON values share, and no others: 1 equals 1.0, and true does not
    equal 1."""
    return json.dumps(_with_integers(value), sort_keys=True)


def _with_integers(value: Any) -> Any:
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return [_with_integers(each) for each in value]
        case dict():
            return {name: _with_integers(each) for name, each in value.items()}
        case _:
            return value


def constants_of(schema: Any) -> list[Any]:
    """Return the values that `const` or `enum` lists; an empty list without these keywords."""
    if not isinstance(schema, dict):
        return []
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def pattern_language(pattern: str) -> Language:
    """Return the texts in which a pattern is found; all texts if it is not regular."""
    try:
        return search_language(pattern)
    except NotRegular:
        return ANYTHING
