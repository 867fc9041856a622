"""Structured output: from the format parameters of a body to one grammar.

Four sets of names ask for a format: OpenAI's `response_format` and `text.format`, which may also be
an XGrammar tag as in OVMS; vLLM's `structured_outputs`; and the older `guided_*` names of vLLM and
FastDeploy. An answer has one format. Only OpenAI's formats have `strict`. Without it, the server
ignores the parts of a schema that no grammar can express; the other names refuse such a schema.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from pydantic.json_schema import SkipJsonSchema

from vinery_serving.core import field_limits
from vinery_serving.core.errors import InvalidRequest, MissingParameter
from vinery_serving.core.json_text import exceeded_limit, is_deeper_than
from vinery_serving.core.request import Grammar, GrammarKind
from vinery_serving.protocols.common import reading

RESPONSE_FORMAT = (
    "Text, a JSON object, a JSON schema or an XGrammar tag. A format that cannot be compiled is "
    "refused. On /v1 Responses have `text.format` instead."
)
_ANY_OBJECT = {"type": "object"}

# The types of XGrammar's structural tags.
_TAG_TYPES = (
    "structural_tag", "any_text", "const_string", "grammar", "or", "qwen_xml_parameter", "regex",
    "sequence", "tag", "tags_with_separator", "triggered_tags",
)  # fmt: skip
_OWN_TYPES = ("text", "json_object", "json_schema")


def _known_type(value: object) -> object:
    if value is not None and value not in (*_OWN_TYPES, *_TAG_TYPES):
        raise reading.invalid(
            "must be 'text', 'json_object', 'json_schema', 'structural_tag' or the type of an "
            f"XGrammar tag: {', '.join(_TAG_TYPES[1:])}"
        )
    return value


FormatType = Annotated[
    str, BeforeValidator(_known_type), Field(json_schema_extra={"enum": list(_OWN_TYPES)})
]

_KEY_ORDER = "The keys of the answer follow the order of the schema's keys."
_STRICT = (
    "True refuses a schema that no grammar can express. Otherwise the server ignores parts without "
    "a grammar, or all of a schema that is too complex: `x-vinery-ignored` then names the schema."
)


class JsonSchema(reading.Wire):
    """A schema with its name."""

    name: reading.Identifier | None = reading.parameter("Repeated by Responses.")
    description: reading.Description | None = reading.parameter("Repeated by Responses.")
    schema_: reading.JsonSchemaObject | None = reading.parameter(_KEY_ORDER, alias="schema")
    strict: bool | None = reading.parameter(_STRICT)


def _with_tag(value: Any) -> Any:
    """Keep a tag unchanged in `tag`. The grammar compiler checks its members."""
    if isinstance(value, dict) and value.get("type") in _TAG_TYPES:
        return {"type": value["type"], "tag": value}
    return {**value, "tag": None} if isinstance(value, dict) else value


def _add_tag_schema(schema: dict[str, Any]) -> None:
    """Add the tags to the JSON schema of a format: their members differ."""
    own = dict(schema)
    tag = {"properties": {"type": {"enum": list(_TAG_TYPES)}}, "required": ["type"]}
    schema.clear()
    schema["anyOf"] = [own, {"type": "object", **tag}]


class _Format(reading.Wire):
    """The members of both formats."""

    model_config = ConfigDict(json_schema_extra=_add_tag_schema)

    type: FormatType = reading.parameter(
        "`text`, `json_object`, `json_schema`, or the type of a tag.", is_required=True
    )
    tag: SkipJsonSchema[reading.JsonSchemaObject | None] = None

    _keep_tag = model_validator(mode="before")(_with_tag)


class ResponseFormat(_Format):
    """Chat's `response_format`."""

    json_schema: JsonSchema | None = reading.parameter("The schema and its name.")
    schema_: reading.JsonSchemaObject | None = reading.parameter(
        "With `json_object`: the schema of the object, as in llama.cpp.", alias="schema"
    )

    def grammar(self) -> Grammar | None:
        return _grammar(self, self.json_schema, "response_format", "json_schema.schema")


class TextFormat(JsonSchema, _Format):
    """The `text.format` of Responses, with the members of `json_schema`."""

    def grammar(self) -> Grammar | None:
        return _grammar(self, self, "text.format", "schema")


_SCHEMA_TEXT = reading.Limited(field_limits.SCHEMA_CHARS)


def _read_schema(value: object) -> object:
    if isinstance(value, str):
        _SCHEMA_TEXT.check(value)
        if (exceeded := exceeded_limit(value.encode())) is not None:
            raise reading.invalid(f"must have at most {exceeded.value} {exceeded.counted}")
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise reading.invalid(f"is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise reading.invalid("must be a JSON schema: an object, or its text")
    if is_deeper_than(field_limits.JSON_LEVELS.value, value):
        raise reading.invalid(f"must not nest more than {field_limits.JSON_LEVELS.value} levels")
    return reading.check_json(reading.SCHEMA_LIMITS, value)


_SchemaOrText = reading.JsonSchemaObject | Annotated[str, _SCHEMA_TEXT]
Schema = Annotated[Any, PlainValidator(_read_schema, json_schema_input_type=_SchemaOrText)]
_ChoiceText = Annotated[str, reading.Limited(field_limits.CHOICE_CHARS)]
SomeChoices = Annotated[
    list[_ChoiceText], Field(min_length=1, fail_fast=True), reading.Limited(field_limits.CHOICE)
]
Choices = Annotated[list[_ChoiceText], Field(fail_fast=True), reading.Limited(field_limits.CHOICE)]
PatternText = Annotated[str, reading.Limited(field_limits.PATTERN)]
GrammarText = Annotated[str, reading.Limited(field_limits.GRAMMAR)]

_SCHEMA_OR_TEXT = "A JSON schema: an object or its text."
_TAG_OR_TEXT = "An XGrammar tag: an object or its text."
_REGEX = "A regular expression for the whole answer."
_CHOICE = "The answer is one of these texts."
_EBNF = "A grammar in EBNF."
_OBJECT = "Any JSON object."


class StructuredOutputs(reading.Wire):
    """vLLM's `structured_outputs`. Unknown members are refused."""

    model_config = ConfigDict(extra="forbid")

    json_: Schema | None = reading.parameter(_SCHEMA_OR_TEXT, alias="json")
    regex: PatternText | None = reading.parameter(_REGEX)
    choice: SomeChoices | None = reading.parameter(_CHOICE)
    grammar: GrammarText | None = reading.parameter(_EBNF)
    structural_tag: Schema | None = reading.parameter(_TAG_OR_TEXT)
    json_object: bool | None = reading.parameter(_OBJECT)
    disable_any_whitespace: bool | None = reading.parameter("JSON without whitespace.")
    disable_additional_properties: Literal[False] | None = reading.parameter(
        "Only false: set `additionalProperties` in the schema."
    )
    whitespace_pattern: None = reading.parameter(
        "Refused: the answer has at most one space after a comma or colon."
    )
    disable_fallback: bool | None = reading.parameter(
        "No effect: the server has one grammar compiler and no fallback."
    )

    def grammars(self) -> Iterator[Grammar]:
        given = {"json": self.json_, **{name: getattr(self, name) for name in _KINDS}}
        is_compact = bool(self.disable_any_whitespace)
        return _grammars("structured_outputs.", given, is_compact=is_compact)


class FormatFields(reading.Wire):
    """The format parameters that all endpoints have."""

    structured_outputs: StructuredOutputs | None = reading.parameter(
        "One constraint on the answer, with vLLM's names."
    )
    structural_tag: Schema | None = reading.parameter(_TAG_OR_TEXT)
    guided_json: Schema | None = reading.parameter(_SCHEMA_OR_TEXT)
    guided_regex: PatternText | None = reading.parameter(_REGEX)
    guided_choice: Choices | None = reading.parameter(_CHOICE)
    guided_grammar: GrammarText | None = reading.parameter(_EBNF)
    guided_json_object: bool | None = reading.parameter(_OBJECT)

    def constraint(
        self, *formats: ResponseFormat | TextFormat | None, others: Iterable[Grammar] = ()
    ) -> Grammar | None:
        """Return the constraint of these fields, of `formats` and of `others`. Raises
        `InvalidRequest` for two constraints, `MissingParameter` for a format without its schema."""
        found = [grammar for each in formats if each and (grammar := each.grammar())]
        found += (*others, *self._grammars())
        if len(found) > 1:
            first, second = found[0].param, found[1].param
            raise InvalidRequest(
                f"`{first}` and `{second}` exclude each other: an answer has one format. "
                "Leave one of them out.",
                param=second,
            )
        return found[0] if found else None

    def _grammars(self) -> Iterator[Grammar]:
        if self.structured_outputs is not None:
            yield from self.structured_outputs.grammars()
        if self.structural_tag is not None:
            yield _tag(self.structural_tag, "structural_tag")
        names = ("json", "json_object", "regex", "choice", "grammar")
        yield from _grammars("guided_", {name: getattr(self, f"guided_{name}") for name in names})


# The members of both sets of names beside `json`.
_KINDS: Final = {
    "json_object": GrammarKind.JSON_SCHEMA,
    "regex": GrammarKind.REGEX,
    "choice": GrammarKind.CHOICE,
    "grammar": GrammarKind.EBNF,
    "structural_tag": GrammarKind.STRUCTURAL_TAG,
}


def _grammars(
    prefix: str, given: Mapping[str, Any], *, is_compact: bool = False
) -> Iterator[Grammar]:
    """Yield a constraint for each that is set. `prefix` is before the name of each field."""
    for name, value in given.items():
        kind, param = _KINDS.get(name, GrammarKind.JSON_SCHEMA), f"{prefix}{name}"
        if value is None or value is False or value == []:
            continue
        if kind is GrammarKind.JSON_SCHEMA:
            schema = _ANY_OBJECT if name == "json_object" else value
            yield schema_grammar(schema, param, is_compact=is_compact)
        elif kind is GrammarKind.STRUCTURAL_TAG:
            yield _tag(value, param)
        else:
            yield Grammar(kind, value if isinstance(value, str) else _source(value), param)


def _grammar(
    form: ResponseFormat | TextFormat, schema: JsonSchema | None, path: str, member: str
) -> Grammar | None:
    if form.tag is not None:
        return _tag(form.tag, path)
    match form.type:
        case "text":
            return None
        case "json_object":
            if form.schema_ is None:
                return schema_grammar(_ANY_OBJECT, path, is_strict=False)
            return schema_grammar(form.schema_, f"{path}.schema", is_strict=False)
    path = f"{path}.{member}"
    if schema is None or schema.schema_ is None:
        raise MissingParameter(f"`{path}` is required.", param=path)
    return schema_grammar(schema.schema_, path, is_strict=bool(schema.strict))


def schema_grammar(
    schema: Any, path: str, *, is_strict: bool = True, is_compact: bool = False
) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, _source(schema), path, is_strict, is_compact)


def _tag(tag: Any, path: str) -> Grammar:
    return Grammar(GrammarKind.STRUCTURAL_TAG, _source(tag), path, is_strict=True)


def _source(value: Any) -> str:
    """Keeps the order of keys, which the answer follows."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
