"""The grammars of JSON schemas, and the schemas that are refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.grammars.json_schema.nodes import SchemaError, Unenforceable
from vinery_serving.grammars.json_schema.strings import FORMATS
from vinery_serving.grammars.json_schema.translator import json_grammar, json_tag

GOLDEN = Path(__file__).parents[1] / "golden" / "grammars"
# Schemas of each kind, with the path of the refused part, and words of the reason.
SCHEMAS = json.loads((Path(__file__).parent / "schemas.json").read_text())


@table("path", sorted(GOLDEN.glob("*.json")))
def test_typical_schemas_have_exactly_these_grammars(path):
    schema = json.loads(path.read_text())

    assert json_grammar(schema, is_strict=True) == path.with_suffix(".ebnf").read_text()


def test_a_compact_grammar_has_no_blanks_and_references_to_one_schema_share_a_rule():
    grammar = json_grammar({"properties": {"a": {"const": [1, {"b": 2}]}}}, is_compact=True)
    assert r'"\"a\":[1,{\"b\":2}]"' in grammar
    assert '" "' not in grammar

    point = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 99}}}
    schema = {"type": "array", "prefixItems": [{"$ref": "#/$defs/p"}] * 3, "$defs": {"p": point}}
    assert json_grammar(schema).count('"\\"x\\":"') == 1


def test_equal_schemas_have_equal_grammars_and_the_last_ones_are_cached():
    patterns = {"^x": {"pattern": "b|aa|[cd]"}, "y$": {"format": "ipv6"}}
    schema = {"patternProperties": patterns, "type": ["object", "string"], "maxLength": 9}
    assert json_grammar(schema) == json_grammar(json.loads(json.dumps(schema)))

    schema = {"title": "only here", "type": "null"}
    assert json_tag(schema)["grammar"] is json_tag(dict(schema))["grammar"]


@table("schema, path", SCHEMAS["unenforceable"])
def test_unenforceable_keywords_are_refused_only_if_strict(schema, path):
    with pytest.raises(Unenforceable) as caught:
        json_grammar(schema, is_strict=True)

    assert caught.value.path == path
    assert json_grammar(schema).startswith("root ::= ")


@table("schema", SCHEMAS["without effect"])
def test_keywords_without_effect_are_accepted(schema):
    assert json_grammar(schema, is_strict=True)


@table("schema, path, words", SCHEMAS["refused"])
def test_an_invalid_or_unsatisfiable_schema_is_refused_with_its_path(schema, path, words):
    with pytest.raises(SchemaError) as caught:
        json_grammar(schema)

    assert caught.value.path == path
    assert words in caught.value.reason


LENGTHS: list[dict[str, int]] = [{}, {"minLength": 1, "maxLength": 2083}, {"minLength": 9}]
LENGTHS += [{"maxLength": most} for most in (40, 100)]


@table("words", [*({"format": name} for name in sorted(FORMATS)), {"pattern": "^[a-z]+@[^@]{9,}$"}])
def test_the_vocabulary_is_tried_at_few_positions_of_a_string(words):
    """XGrammar tries it at each position of a set of characters, and counts more than 128
    repetitions in each step."""
    for lengths in LENGTHS:
        text = json_grammar({"prefixItems": [{"type": "string", **words, **lengths}] * 5})

        repeated = [int(most or least) for least, most in re.findall(r"\{(\d+),?(\d*)\}", text)]
        sets = re.findall(r"(?<!\\)\](?:\{(\d+),?(\d*)\})?", text)
        assert sum(int(most or least or 1) for least, most in sets) <= 90, (words, lengths)
        assert max(repeated, default=0) <= 128


def test_a_deep_schema_is_accepted_and_one_with_too_many_rules_refused():
    """Each level of the second schema must fit one more combination of the options."""
    deep: Any = {"type": "null"}
    for _ in range(90):
        deep = {"type": "array", "items": deep}
    assert json_grammar(deep)

    def both(one: int, other: int) -> Any:
        return {"allOf": [{"$ref": f"#/$defs/d{other}"}, {"$ref": f"#/$defs/d{one}"}]}

    levels = {
        f"d{at}": {"properties": {f"p{other}": both(at, other) for other in range(30)}}
        for at in range(30)
    }
    with pytest.raises(SchemaError, match="is too large"):
        json_grammar({"$defs": levels, "$ref": "#/$defs/d0"})
