"""The grammars of JSON schemas, and the schemas that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.constraints.json_schema.nodes import SchemaError, Unenforceable
from vinery_serving.constraints.json_schema.translator import json_grammar, json_tag

GOLDEN = Path(__file__).parents[1] / "golden" / "grammars"


@table("path", sorted(GOLDEN.glob("*.json")))
def test_typical_schemas_have_exactly_these_grammars(path: Path) -> None:
    schema = json.loads(path.read_text())

    assert json_grammar(schema, is_strict=True) == path.with_suffix(".ebnf").read_text()


def test_a_compact_grammar_has_no_blanks() -> None:
    grammar = json_grammar({"properties": {"a": {"const": [1, {"b": 2}]}}}, is_compact=True)

    assert r'"\"a\":[1,{\"b\":2}]"' in grammar
    assert '" "' not in grammar


def test_references_to_one_schema_share_a_rule() -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 99}}}
    schema = {"type": "array", "prefixItems": [{"$ref": "#/$defs/p"}] * 3, "$defs": {"p": point}}

    assert json_grammar(schema).count('"\\"x\\":"') == 1


def test_equal_schemas_have_equal_grammars() -> None:
    schema = {
        "patternProperties": {"^x": {"pattern": "b|aa|[cd]"}, "y$": {"format": "ipv6"}},
        "type": ["object", "string"],
        "maxLength": 9,
    }

    assert json_grammar(schema) == json_grammar(json.loads(json.dumps(schema)))


@table(
    "schema, path",
    [
        ({"not": {}}, ".not"),
        ({"properties": {"a": {"items": {"not": {}}}}}, ".properties.a.items.not"),
        ({"if": {}, "then": {"minimum": 1}}, ".if"),
        ({"type": "array", "uniqueItems": True}, ".uniqueItems"),
        ({"type": "array", "contains": {}}, ".contains"),
        ({"dependentRequired": {"a": ["b"]}}, ".dependentRequired"),
        ({"dependentSchemas": {"a": {}}}, ".dependentSchemas"),
        ({"anyOf": [{}, {"unevaluatedProperties": False}]}, ".anyOf[1].unevaluatedProperties"),
        ({"$dynamicRef": "#a"}, ".$dynamicRef"),
        ({"pattern": "(?!a)b"}, ".pattern"),
        ({"pattern": "\\bword\\b"}, ".pattern"),
        ({"patternProperties": {"(a)\\1": {}}}, ".patternProperties"),
        ({"format": "regex"}, ".format"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ".oneOf"),
        ({"oneOf": [{"maxLength": 3}, {"minLength": 3}]}, ".oneOf"),
        (
            {"type": "object", "minProperties": 3, "additionalProperties": {"type": "null"}},
            ".minProperties",
        ),
        ({"type": "integer", "multipleOf": 99991}, ".multipleOf"),
        ({"type": "string", "pattern": "(ab?){500}c", "maxLength": 600}, ".pattern"),
    ],
)
def test_unenforceable_keywords_are_refused_only_if_strict(schema: Any, path: str) -> None:
    with pytest.raises(Unenforceable) as caught:
        json_grammar(schema, is_strict=True)

    assert caught.value.path == path
    assert json_grammar(schema).startswith("root ::= ")


@table(
    "schema",
    [
        {"type": "array", "uniqueItems": True, "maxItems": 1},
        {"type": "array", "uniqueItems": False},
        {"if": {"type": "null"}},
        {"then": False},
        {"maxContains": 2},
        {"dependentRequired": {}},
        {"format": "password"},
        {"unknown": 1, "type": "string"},
        {"oneOf": [{"maxLength": 2, "type": "string"}, {"minLength": 3, "type": "string"}]},
        {"oneOf": [{"required": ["a"], "properties": {"a": {"const": c}}} for c in (1, 2, 1.5)]},
        {"oneOf": [{"type": "string"}, {"type": ["null", "integer"]}]},
        {"oneOf": [{"pattern": "^a", "type": "string"}, {"pattern": "^b", "type": "string"}]},
    ],
)
def test_keywords_without_effect_are_accepted(schema: Any) -> None:
    assert json_grammar(schema, is_strict=True)


@table(
    "schema, path, words",
    [
        (False, "", "allows no value"),
        ([], "", "must be an object or a boolean"),
        ("string", "", "must be an object or a boolean"),
        ({"type": "text"}, ".type", "must be one of object"),
        ({"type": []}, ".type", "must be one of object"),
        ({"properties": []}, ".properties", "must be an object"),
        ({"properties": {"a": 1}}, ".properties.a", "must be an object or a boolean"),
        ({"items": {"required": "a"}}, ".items.required", "must be an array of strings"),
        ({"enum": []}, ".enum", "not empty"),
        ({"anyOf": {}}, ".anyOf", "not empty"),
        ({"minimum": "1"}, ".minimum", "must be a number"),
        ({"minLength": -1}, ".minLength", "must be an integer from 0"),
        ({"minItems": 0.5}, ".minItems", "must be an integer from 0"),
        ({"multipleOf": 0}, ".multipleOf", "must be a number above 0"),
        ({"pattern": "a{2,1}"}, ".pattern", "reversed, at character 6"),
        ({"patternProperties": {"[b-a]": {}}}, ".patternProperties", "is reversed"),
        ({"$ref": "#/$defs/none"}, ".$ref", "points at nothing"),
        ({"$ref": "other.json"}, ".$ref", "must begin with #"),
        ({"$ref": "#/title", "title": "t"}, ".$ref", "does not point at a schema"),
        ({"$ref": "#"}, "", "refers to itself"),
        (
            {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
            ".$defs.a",
            "refers to itself",
        ),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "", "allows no value"),
        ({"type": "string", "minLength": 2_000_000}, ".minLength", "must be at most"),
        ({"type": "integer", "minimum": 0.2, "maximum": 0.8}, "", "allows no value"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "", "allows no value"),
        (
            {
                "type": "object",
                "required": ["b"],
                "properties": {"b": {"enum": [1], "type": "null"}},
            },
            ".properties.b",
            "allows no value",
        ),
        (
            {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}},
            "",
            "allows no value that comes to an end",
        ),
        ({"allOf": [{"anyOf": [{}] * 30}] * 3}, "", "combinations"),
    ],
)
def test_an_invalid_or_unsatisfiable_schema_is_refused_with_its_path(
    schema: Any, path: str, words: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        json_grammar(schema)

    assert caught.value.path == path
    assert words in caught.value.reason


def test_a_schema_with_too_many_rules_is_refused() -> None:
    """Each level must fit one more combination of the options."""
    schema = {
        "$defs": {
            f"d{at}": {
                "properties": {
                    f"p{other}": {
                        "allOf": [{"$ref": f"#/$defs/d{other}"}, {"$ref": f"#/$defs/d{at}"}]
                    }
                    for other in range(30)
                }
            }
            for at in range(30)
        },
        "$ref": "#/$defs/d0",
    }

    with pytest.raises(SchemaError, match="is too large"):
        json_grammar(schema)


def test_a_deep_schema_is_accepted() -> None:
    schema: Any = {"type": "null"}
    for _ in range(90):
        schema = {"type": "array", "items": schema}

    assert json_grammar(schema)


def test_the_grammar_of_a_schema_is_cached() -> None:
    schema = {"title": "only here", "type": "null"}

    assert json_tag(schema)["grammar"] is json_tag(dict(schema))["grammar"]
