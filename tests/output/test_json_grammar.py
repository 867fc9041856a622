"""Which schemas have a grammar of our own, and what it says."""

from typing import Any

import pytest

from serving.output.json_grammar import json_grammar


def rules_of(schema: Any) -> dict[str, str]:
    grammar = json_grammar(schema)
    assert grammar is not None
    return dict(line.split(" ::= ", 1) for line in grammar.splitlines())


def test_properties_come_in_order_and_only_optional_ones_may_be_left_out() -> None:
    rules = rules_of(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
            "required": ["b"],
        }
    )

    only_b, then_b = rules["r0"], rules["r1"]
    assert only_b == r'"\"b\"" ":" sp null ""'
    assert then_b == r'"," sp "\"b\"" ":" sp null ""'
    assert rules["r2"] == r'"\"a\"" ":" sp integer r1 | r0'


def test_blanks_have_an_end_everywhere() -> None:
    rules = rules_of({"type": "object"})

    assert rules["sp"] == '" "?'
    assert not any(" *" in body or r"\n" in body for body in rules.values())


def test_a_schema_may_contain_itself() -> None:
    rules = rules_of({"type": "array", "items": {"$ref": "#"}})

    assert "d0" in rules[rules["d0"]]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "description": "d", "title": "t", "default": "x"},
        {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
        {"type": "number", "minimum": 0},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "boolean"}}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"properties": {"a": {}}},
        {},
    ],
)
def test_these_are_translated(schema: Any) -> None:
    assert json_grammar(schema) is not None


@pytest.mark.parametrize(
    "schema",
    [
        False,
        [],
        "string",
        {"type": "text"},
        {"type": []},
        {"type": "string", "pattern": "a+"},
        {"type": "string", "format": "date"},
        {"type": "string", "minLength": 5, "maxLength": 2},
        {"type": "string", "maxLength": 100_000},
        {"type": "integer", "minimum": 0.5},
        {"type": "integer", "minimum": 1, "maximum": 10_000},
        {"type": "number", "maximum": 1},
        {"type": "array", "uniqueItems": True},
        {"type": "array", "prefixItems": [{}]},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {"type": "object", "required": ["a"]},
        {"type": "object", "patternProperties": {}},
        {"enum": []},
        {"not": {}},
        {"anyOf": [{"type": "string"}], "type": "string"},
        {"$ref": "#/$defs/none"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
)
def test_these_are_left_to_the_engine(schema: Any) -> None:
    assert json_grammar(schema) is None
