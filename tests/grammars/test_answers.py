"""The grammar of an answer: alone, after reasoning, and beside tools."""

import json
from pathlib import Path

import pytest

from tests.output.builders import WEATHER
from tests.tables import table
from vinery_serving.core.errors import InvalidGrammar, InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import Grammar, GrammarKind, Tool, ToolChoice, ToolMode
from vinery_serving.grammars.answers import answer_grammar
from vinery_serving.grammars.families.registry import FAMILIES, by_name
from vinery_serving.grammars.json_schema.translator import json_grammar
from vinery_serving.grammars.texts import lowered

FIELD = "response_format"
PING = Tool("ping")
REQUIRED = ToolChoice(ToolMode.REQUIRED)
OBJECT = {"type": "object"}
# The kind and source of each grammar, the path of the refused part, and words of the message.
REFUSED = json.loads((Path(__file__).parent / "refused_grammars.json").read_text())["rows"]


def a_grammar(kind, source, **marks):
    return Grammar(kind, source if isinstance(source, str) else json.dumps(source), FIELD, **marks)


def of_tag(tag, **marks):
    return a_grammar(GrammarKind.STRUCTURAL_TAG, tag, **marks)


def of_schema(schema, **marks):
    return a_grammar(GrammarKind.JSON_SCHEMA, schema, **marks)


def answer(grammar, name="think+hermes", opens_reasoning=False, **options):
    return answer_grammar(
        by_name(name).grammar, grammar, opens_reasoning=opens_reasoning, **options
    )


def format_of(grammar):
    assert grammar.kind is GrammarKind.STRUCTURAL_TAG
    return json.loads(grammar.source)["format"]


def refused(grammar):
    with pytest.raises(InvalidRequest) as caught:
        answer(grammar)
    return caught.value


@table(
    "grammar, source",
    [
        (of_schema({"type": "integer"}), json_grammar({"type": "integer"})),
        (of_schema(OBJECT, is_compact=True), json_grammar(OBJECT, is_compact=True)),
        (a_grammar(GrammarKind.EBNF, 'root ::= "a"'), 'root ::= "a"'),
        (a_grammar(GrammarKind.REGEX, "^a|b+$"), 'root ::= "a" | "b"+\n'),
        (a_grammar(GrammarKind.CHOICE, ["a", 'b"\\\n', "a"]), 'root ::= "a" | "b\\"\\\\\\x0a"\n'),
        (of_tag({"type": "regex", "pattern": "[ab]"}), "root ::= [a-b]\n"),
        (of_tag({"format": {"type": "json_schema", "json_schema": OBJECT}}), json_grammar(OBJECT)),
    ],
)
def test_a_tag_with_nothing_but_a_grammar_becomes_ebnf(grammar, source):
    assert answer(grammar) == Grammar(GrammarKind.EBNF, source, FIELD)


@table(
    "grammar, tag",
    [
        (of_schema(OBJECT), {"type": "grammar", "grammar": json_grammar(OBJECT)}),
        (a_grammar(GrammarKind.REGEX, "a"), {"type": "grammar", "grammar": 'root ::= "a"\n'}),
        (of_tag({"format": {"type": "any_text"}}), {"type": "any_text"}),
        (of_tag({"type": "const_string", "value": "x"}), {"type": "const_string", "value": "x"}),
    ],
)
def test_the_grammar_applies_to_the_answer_and_not_to_the_reasoning(grammar, tag):
    assert format_of(answer(grammar, opens_reasoning=True))["elements"][2] == tag


def test_schemas_and_patterns_inside_tags_become_grammars():
    tag = {"begin": "<", "content": {"type": "regex", "pattern": "a"}, "end": [">", "/"]}
    tags = {"type": "tags_with_separator", "separator": ",", "tags": [tag]}
    schema = {"type": "json_schema", "json_schema": OBJECT}

    sequence = {"type": "sequence", "elements": [schema, tags]}
    first, second = format_of(answer(of_tag(sequence)))["elements"]
    assert first == {"type": "grammar", "grammar": json_grammar(OBJECT)}
    assert second["tags"][0]["content"] == {"type": "grammar", "grammar": 'root ::= "a"\n'}
    # The older form is free text with triggered tags.
    older = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f>"]}
    content = {"type": "grammar", "grammar": json_grammar({})}
    newer = {"type": "tag", "begin": "<f>", "content": content, "end": "</f>"}
    triggered = {"type": "triggered_tags", "triggers": ["<f>"], "tags": [newer]}
    assert format_of(answer(of_tag(older))) == triggered


def test_tools_may_be_called_instead_of_an_answer():
    tag = format_of(answer(of_schema(OBJECT), tools=[WEATHER], parallel=False))

    calls, text = tag["elements"]
    assert tag["type"] == "or"
    assert calls["grammar"].startswith('root ::= ((("<tool_call>')
    assert text == {"type": "grammar", "grammar": json_grammar(OBJECT)}
    # The same choice follows reasoning.
    tag = format_of(answer(of_schema(OBJECT), tools=[WEATHER], opens_reasoning=True))
    assert tag["elements"][2]["type"] == "or"


@table("pattern, path", [("(?!a)b", ""), ("(a", ".pattern")])
def test_a_tool_with_a_pattern_that_is_not_regular_is_refused_beside_an_answer(pattern, path):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}

    with pytest.raises(InvalidGrammar) as caught:
        answer(of_schema(OBJECT), "qwen3coder", tools=[Tool("f", None, schema)])

    assert caught.value.param == f"tools{path}"


def test_a_family_without_calls_has_only_the_answer_and_deeply_nested_tags_are_refused():
    assert answer(of_schema(OBJECT), "plain", tools=[WEATHER]).kind is GrammarKind.EBNF

    tag = {"type": "any_text"}
    for _ in range(40):
        tag = {"type": "or", "elements": [tag]}
    assert "nests more than 30 levels" in refused(of_tag(tag)).message


@table("name", [n for n in sorted(FAMILIES) if by_name(n).grammar.supports_calls])
def test_calls_of_every_family_become_one_grammar(name):
    """XGrammar accepts a choice between calls and an answer only as grammars."""
    tag = by_name(name).grammar.calls([WEATHER, PING], REQUIRED, parallel=True)

    assert lowered(tag)["type"] == "grammar"


def test_combined_grammars_keep_their_rule_names_apart():
    one = {"type": "grammar", "grammar": 'root ::= a # a\na ::= "a" [a] b\nb ::= a?\n'}

    text = lowered({"type": "sequence", "elements": [one, one]})["grammar"]

    rules = '{0}_root ::= {0}_a # a\n{0}_a ::= "a" [a] {0}_b\n{0}_b ::= {0}_a?\n'
    expected = f"root ::= (g0_root g1_root)\n{rules.format('g0')}{rules.format('g1')}"
    assert text.splitlines() == expected.splitlines()


@table(
    "tag",
    [
        {"type": "tag", "begin": "<", "content": {"type": "any_text"}, "end": "ab" * 20_000},
        {"type": "triggered_tags", "triggers": ["<"], "tags": []},
    ],
)
def test_free_text_with_a_long_end_or_triggers_has_no_grammar(tag):
    assert lowered(tag) is None


def test_a_keyword_that_cannot_be_enforced_is_ignored_unless_the_schema_is_strict():
    schema = {"type": "object", "properties": {"age": {"type": "integer", "not": {"const": 1}}}}
    known = {"type": "object", "properties": {"age": {"type": "integer"}}}

    error = refused(of_schema(schema, is_strict=True))

    assert isinstance(error, UnsupportedParameter)
    assert error.param == "response_format.properties.age.not"
    assert "`response_format.properties.age.not` cannot be enforced" in error.message
    assert answer(of_schema(schema)).source == json_grammar(known)


@table("kind, source, path, words", REFUSED)
def test_an_error_names_the_path_of_its_cause(kind, source, path, words):
    error = refused(a_grammar(GrammarKind(kind), source))

    assert isinstance(error, InvalidGrammar)
    assert error.param == FIELD + path
    assert words in error.message
