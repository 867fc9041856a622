"""The translation of a schema takes steps in proportion to its size, or is refused by its budget.

Steps and calls are counted, never time.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.operations import calls
from tests.tables import table
from vinery_serving.core import field_limits
from vinery_serving.core.errors import InvalidGrammar
from vinery_serving.core.field_limits import (
    SCHEMA_CHARS,
    SCHEMA_ENUM_VALUES,
    SCHEMA_NAMES,
    SCHEMA_PROPERTIES,
    SCHEMA_STEPS,
)
from vinery_serving.grammars.grammar.steps import spend, step_budget
from vinery_serving.grammars.json_schema.nodes import SchemaError, Unenforceable
from vinery_serving.grammars.json_schema.translator import json_grammar, json_tag

Family = Callable[[int], Any]
TEXT = {"type": "string"}
NINE = {"maxLength": 9}
# What one step may cost: a step is a loop around a few calls.
MAX_CALLS_OF_A_STEP = 12
CALLS_OF_A_SMALL_SCHEMA = 30_000
TOO_LARGE = ("too large", "too deeply", "more than", "exceeds the", "must be at most")


def an_object(number: int, **words: Any) -> Any:
    return {"type": "object", "properties": {f"p{at}": TEXT for at in range(number)}, **words}


def each(number: int, schema: Callable[[int], Any]) -> Any:
    return {"properties": {f"p{at}": schema(at) for at in range(number)}}


def names(number: int) -> list[str]:
    return [f"p{at:03}" for at in range(number)]


def in_a_list(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def recursive(depth: int, word: str = "anyOf") -> Any:
    """A value inside `depth` arrays, each of which may be read by any of two references."""
    item = {"items": {"$ref": "#/$defs/n"}}
    other = {"type": "string"} if word == "oneOf" else item
    return {"$defs": {"n": {word: [item, other]}}, "const": in_a_list(depth), **item}


def nested(depth: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def chain(number: int, **words: Any) -> Any:
    """Definitions that each lead to the next."""
    links = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}", **words} for at in range(number)}
    return {"$defs": {**links, f"d{number}": TEXT}, "$ref": "#/$defs/d0"}


def doubled_references(number: int) -> Any:
    """Definitions that each refer twice to the next: 2 ** number ways to the last."""
    links = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(number)}
    return {"$defs": {**links, f"d{number}": TEXT}, "$ref": "#/$defs/d0"}


def values(number: int) -> list[Any]:
    return [{"name": f"value {at}", "at": [at, at + 0.5, None]} for at in range(number)]


LINEAR: dict[str, tuple[Family, int]] = {
    "properties": (an_object, 100),
    "required properties": (lambda n: an_object(n, required=[f"p{at}" for at in range(n)]), 100),
    "properties with a minimum": (lambda n: an_object(n, minProperties=2), 100),
    "properties with a maximum": (lambda n: an_object(n, maxProperties=2), 100),
    "properties beside others": (lambda n: an_object(n, additionalProperties=TEXT), 30),
    "names with a pattern": (lambda n: an_object(n, propertyNames={"pattern": "^p[0-9]+$"}), 100),
    "properties with a pattern": (lambda n: an_object(n, patternProperties={"0$": {}}), 20),
    "required names": (lambda n: {"required": names(n), "additionalProperties": True}, 50),
    "texts of an enum": (lambda n: {"enum": [f"value {at}" for at in range(n)]}, 200),
    "objects of an enum": (lambda n: {"enum": values(n)}, 50),
    "an enum in every part of allOf": (lambda n: {"allOf": [{"enum": values(n)}] * 5}, 50),
    "parts of allOf with an enum": (lambda n: {"allOf": [{"enum": values(20)}] * n}, 20),
    "a constant": (lambda n: {"const": values(n), "items": {"type": "object"}}, 50),
    "a constant of a recursive anyOf": (recursive, 20),
    "a constant of a recursive oneOf": (lambda n: recursive(n, "oneOf"), 20),
    "a constant of a recursive allOf": (lambda n: recursive(n, "allOf"), 20),
    "options of anyOf": (lambda n: {"anyOf": [an_object(at % 3) for at in range(n)]}, 50),
    "options of oneOf": (lambda n: {"oneOf": [{"const": at} for at in range(n)]}, 50),
    "parts of allOf": (lambda n: {"allOf": [{"maxLength": at + 9} for at in range(n)]}, 100),
    "parts of allOf with properties": (
        lambda n: {"allOf": [{"properties": {f"p{at}": TEXT}} for at in range(n)]},
        100,
    ),
    "levels": (nested, 20),
    "references": (lambda n: {"prefixItems": [{"$ref": "#/$defs/a"}] * n, "$defs": {"a": {}}}, 200),
    "a chain of references": (chain, 100),
    "references into a chain": (
        lambda n: {**chain(n), "prefixItems": [{"$ref": f"#/$defs/d{at}"} for at in range(n)]},
        50,
    ),
    "references that double": (doubled_references, 10),
    "items": (lambda n: {"prefixItems": [{"type": "integer", "minimum": 0}] * n}, 100),
    "a literal pattern": (lambda n: {"pattern": f"^{'ab' * n}$"}, 100),
    "alternatives of a pattern": (
        lambda n: {"pattern": f"^({'|'.join(f'a{at}' for at in range(n))})$"},
        50,
    ),
    "sets of a pattern": (lambda n: {"pattern": "[a-c]" * n}, 100),
    "patterns": (lambda n: each(n, lambda at: {"pattern": f"^a{at}[bc]+$"}), 30),
    "counted patterns": (lambda n: each(n, lambda at: {"pattern": f"a{at}[bc]+$", **NINE}), 5),
    "bounded numbers": (lambda n: each(n, lambda at: {"type": "integer", "maximum": at + 9}), 5),
    "a description": (lambda n: {"description": "word " * 100 * n, **TEXT}, 50),
}

# Each never ended, took many seconds, or needed gigabytes.
HOSTILE: dict[str, Any] = {
    "a constant of a recursive anyOf": recursive(60),
    "optional properties with a minimum": an_object(3000, minProperties=1500),
    "optional properties with a small minimum": an_object(3000, minProperties=2),
    "optional properties with a maximum": an_object(3000, maxProperties=1500),
    "required names": {"required": names(100_000), "additionalProperties": True},
    "properties": an_object(100_000),
    "parts of allOf with an enum": {"allOf": [{"enum": values(2000)}] * 50},
    "texts of an enum": {"enum": [f"value {at}" for at in range(10_000)]},
    "many texts of an enum": {"enum": [f"value {at}" for at in range(100_000)]},
    "names with a pattern": an_object(3000, propertyNames={"pattern": "^[a-z0-9]+$"}),
    "names beside others": an_object(3000, additionalProperties=True),
    "references that double": doubled_references(200),
    "parts of allOf": {"allOf": [{"maxLength": at} for at in range(20_000)]},
    "options of anyOf inside options": {
        "$defs": {
            "a": {"anyOf": [{"$ref": "#/$defs/b"}] * 400},
            "b": {"anyOf": [{"$ref": "#/$defs/c"}] * 400},
            "c": {"anyOf": [{"const": at} for at in range(400)]},
        },
        "$ref": "#/$defs/a",
    },
    "options of oneOf that overlap": {"oneOf": [{"maxLength": at} for at in range(400)]},
    "patterns with large automata": each(
        1000, lambda at: {"pattern": f"(a|b)*a(a|b){{30}}{at}", "maxLength": 90}
    ),
    "parts of allOf with properties": {
        "allOf": [
            {"properties": {f"p{at}": TEXT}, "additionalProperties": True} for at in range(2000)
        ]
    },
}

HELD: dict[str, Any] = {
    "a large minimum of characters": {"type": "string", "minLength": 10**9},
    "a large minimum of items": {"type": "array", "minItems": 10**9},
    "a large minimum of properties": {"type": "object", "minProperties": 10**9},
    "large bounds inside each other": {
        "type": "array",
        "minItems": 10**6,
        "items": {"type": "array", "minItems": 10**6},
    },
    "options of oneOf": {"oneOf": [{"const": at} for at in range(2000)]},
    "parts of allOf with options": {"allOf": [{"anyOf": [{"maxLength": 9}] * 20}] * 20},
    "references": {"prefixItems": [{"$ref": "#/$defs/a"}] * 20_000, "$defs": {"a": TEXT}},
    "intersected patterns": {"allOf": [{"pattern": f"(a|b)*a(a|b){{{at}}}"} for at in range(59)]},
    "a long pattern": {"pattern": "a" * 1_000_000},
    "groups of a pattern": {"pattern": "(" * 50_000 + ")" * 50_000},
    "repetitions in repetitions": {"pattern": "((a{1,1000}){1,1000}){1,1000}"},
}


@contextmanager
def steps_set_to(number: int) -> Iterator[None]:
    field_limits.configure({"schema_steps": number})
    try:
        yield
    finally:
        field_limits.configure({})


def steps_of(schema: Any, *, is_strict: bool = False) -> int | None:
    """Return how many steps a translation takes; None if the schema is refused as too large."""
    with step_budget(SCHEMA_STEPS) as budget:
        try:
            json_grammar(schema, is_strict=is_strict)
        except Unenforceable:
            return budget.num_spent
        except SchemaError as error:
            assert any(words in error.reason for words in TOO_LARGE), error.reason
            return None
        return budget.num_spent


@table("is_strict", [False, True])
@table("name", LINEAR)
def test_twice_the_size_takes_about_twice_the_steps(name, is_strict):
    family, size = LINEAR[name]
    steps = [steps_of(family(number), is_strict=is_strict) for number in (size, 2 * size)]

    assert steps[0] is not None
    assert steps[1] is None or steps[1] <= 2.3 * steps[0]


@table("name", LINEAR)
def test_a_step_is_a_few_calls(name):
    family, size = LINEAR[name]
    schema = family(4 * size)
    json_grammar(TEXT)  # what is loaded once

    found = []

    num_calls = calls(lambda: found.append(steps_of(schema)))

    most = MAX_CALLS_OF_A_STEP * (found[0] or SCHEMA_STEPS.default)
    assert num_calls <= most + CALLS_OF_A_SMALL_SCHEMA


@table("is_strict", [False, True])
@table("name", [*HOSTILE, *HELD])
def test_a_hostile_schema_is_translated_or_refused_within_its_budget(name, is_strict):
    schema = {**HELD, **HOSTILE}[name]

    # The default takes four times as long to use up, and to count.
    with steps_set_to(SCHEMA_STEPS.default // 4):
        num_calls = calls(lambda: steps_of(schema, is_strict=is_strict))
        most = MAX_CALLS_OF_A_STEP * SCHEMA_STEPS.value

    assert num_calls <= most


@table(
    "schema, words",
    [
        (an_object(SCHEMA_PROPERTIES.value + 1), "has more than 5000 properties"),
        ({"required": ["a"] * (SCHEMA_PROPERTIES.value + 1)}, "has more than 5000 properties"),
        ({"enum": [*range(SCHEMA_ENUM_VALUES.value + 1)]}, "exceeds the 5000 values"),
        ({"const": "a" * (SCHEMA_NAMES.value + 1)}, "has more than 120000 characters in names"),
        ({"description": "a" * SCHEMA_CHARS.value}, "must have at most 1000000 characters"),
        (an_object(3000, minProperties=1500), "is too large.*VINERY_MAX_SCHEMA_STEPS"),
    ],
)
def test_a_schema_that_is_too_large_is_refused_by_the_name_of_its_field(schema, words):
    with pytest.raises(InvalidGrammar, match=words) as caught:
        json_tag(schema, param="guided_json")

    assert (caught.value.param or "").startswith("guided_json")
    assert caught.value.status == 400


@table("size", [1000, 5000])
def test_ordinary_large_schemas_are_translated(size):
    assert json_grammar({"enum": [f"value {at}" for at in range(size)]})
    assert json_grammar(an_object(size // 10, required=["p0"], additionalProperties=False))


def test_an_amount_of_money_takes_a_small_part_of_the_budget_and_a_bound_may_be_the_largest():
    for factor in (0.01, 0.25, 0.05, 2.5):
        steps = steps_of({"type": "number", "multipleOf": factor})
        assert steps is not None and steps < SCHEMA_STEPS.value // 5
    assert json_grammar({"type": "number", "maximum": sys.float_info.max})


def test_a_cached_grammar_takes_the_same_steps_and_the_budget_is_that_of_all_schemas():
    spent = []
    for _ in range(2):
        with step_budget() as budget:
            json_tag({"title": "counted", "properties": {"a": TEXT}})
            spent.append(budget.num_spent)
    assert spent[0] == spent[1] > 0

    with step_budget() as budget:
        spend(budget.limit - 10)
        with pytest.raises(InvalidGrammar, match="`tools` is too large"):
            json_tag(an_object(3))
    # A setting changes it.
    with steps_set_to(500), pytest.raises(InvalidGrammar, match="more than 500 steps"):
        json_tag(an_object(50))


NUMBER = 10**309


@table(
    "schema, path",
    [
        *(
            ({word: NUMBER}, f"guided_json.{word}")
            for word in (
                *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
                *("minItems", "maxItems", "minLength", "maxLength", "minProperties"),
            )
        ),
        ({"maximum": -NUMBER}, "guided_json.maximum"),
        ({"enum": [1, [NUMBER]], "multipleOf": 0.5}, "guided_json.enum"),
        ({"const": {"a": NUMBER}}, "guided_json.const"),
        ({"properties": {"a": {"minimum": NUMBER}}}, "guided_json.properties.a.minimum"),
        ({"$ref": f"#/anyOf/{'9' * 5000}", "anyOf": [True]}, "guided_json.$ref"),
    ],
)
def test_a_number_with_too_many_digits_is_refused_with_its_path(schema, path):
    with pytest.raises(InvalidGrammar) as caught:
        json_tag(json.loads(json.dumps(schema)), param="guided_json")

    assert caught.value.param == path
