"""Structured output: from `response_format` or `text.format` to a grammar."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from serving.core.errors import MissingParameter
from serving.core.request import Grammar, GrammarKind
from serving.protocols.reading import Wire, unsupported

_ANY_OBJECT = {"type": "object"}


def _refuse_other_languages(value: object) -> object:
    if value in ("structural_tag", "regex", "grammar", "ebnf"):
        raise unsupported("must be text, json_object or json_schema")
    return value


FormatType = Annotated[
    Literal["text", "json_object", "json_schema"], BeforeValidator(_refuse_other_languages)
]


class JsonSchema(Wire):
    """A schema with its name. `strict` needs no obedience: the schema always holds."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Wire):
    """Chat's `response_format`."""

    type: FormatType
    json_schema: JsonSchema | None = None

    def grammar(self) -> Grammar | None:
        """The constraint that this asks for. None for plain text."""
        schema = None if self.json_schema is None else self.json_schema.schema_
        missing = "response_format.json_schema.schema"
        return _grammar(self.type, schema, param="response_format", missing=missing)


class TextFormat(JsonSchema):
    """The `text.format` of responses: the same, without the inner object."""

    type: FormatType

    def grammar(self) -> Grammar | None:
        """The constraint that this asks for. None for plain text."""
        param = "text.format.schema"
        return _grammar(self.type, self.schema_, param=param, missing=param)


def grammar_of(wanted: ResponseFormat | TextFormat | None) -> Grammar | None:
    """The constraint of an optional field. Raises `MissingParameter` without a schema."""
    return None if wanted is None else wanted.grammar()


def _grammar(
    kind: str, schema: dict[str, Any] | None, *, param: str, missing: str
) -> Grammar | None:
    if kind == "text":
        return None
    if kind == "json_object":
        schema = _ANY_OBJECT
    if schema is None:
        raise MissingParameter(f"`{missing}` is required.", param=missing)
    # Key order is kept: the answer's keys follow it.
    source = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return Grammar(GrammarKind.JSON_SCHEMA, source, param)
