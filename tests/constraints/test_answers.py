"""The grammar of an answer: alone, after reasoning, and beside tools."""

import json

import pytest

from tests.output.builders import WEATHER
from tests.tables import table
from vinery_serving.constraints.answers import answer_grammar
from vinery_serving.constraints.families.registry import by_name, family_names
from vinery_serving.constraints.json_schema.translator import json_grammar
from vinery_serving.constraints.lowering import lowered
from vinery_serving.core.errors import InvalidGrammar, InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import Grammar, GrammarKind, Tool, ToolChoice, ToolMode

FIELD = "response_format"
PING = Tool("ping")
REQUIRED = ToolChoice(ToolMode.REQUIRED)
OBJECT = {"type": "object"}


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


def test_the_older_form_is_free_text_with_triggered_tags():
    tag = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f>"]}

    assert format_of(answer(of_tag(tag))) == {
        "type": "triggered_tags",
        "triggers": ["<f>"],
        "tags": [
            {
                "type": "tag",
                "begin": "<f>",
                "content": {"type": "grammar", "grammar": json_grammar({})},
                "end": "</f>",
            }
        ],
    }


def test_schemas_and_patterns_inside_tags_become_grammars():
    tag = {
        "type": "sequence",
        "elements": [
            {"type": "json_schema", "json_schema": OBJECT},
            {
                "type": "tags_with_separator",
                "separator": ",",
                "tags": [
                    {"begin": "<", "content": {"type": "regex", "pattern": "a"}, "end": [">", "/"]}
                ],
            },
        ],
    }

    first, second = format_of(answer(of_tag(tag)))["elements"]

    assert first == {"type": "grammar", "grammar": json_grammar(OBJECT)}
    assert second["tags"][0]["content"] == {"type": "grammar", "grammar": 'root ::= "a"\n'}


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


def test_a_family_without_calls_has_only_the_answer():
    assert answer(of_schema(OBJECT), "plain", tools=[WEATHER]).kind is GrammarKind.EBNF


@table("name", [n for n in family_names() if by_name(n).grammar.supports_calls])
def test_calls_of_every_family_become_one_grammar(name):
    """XGrammar accepts a choice between calls and an answer only as grammars."""
    tag = by_name(name).grammar.calls([WEATHER, PING], REQUIRED, parallel=True)

    assert lowered(tag)["type"] == "grammar"


def test_combined_grammars_keep_their_rule_names_apart():
    one = {"type": "grammar", "grammar": 'root ::= a # a\na ::= "a" [a] b\nb ::= a?\n'}

    text = lowered({"type": "sequence", "elements": [one, one]})["grammar"]

    assert text.splitlines() == [
        "root ::= (g0_root g1_root)",
        "g0_root ::= g0_a # a",
        'g0_a ::= "a" [a] g0_b',
        "g0_b ::= g0_a?",
        "g1_root ::= g1_a # a",
        'g1_a ::= "a" [a] g1_b',
        "g1_b ::= g1_a?",
    ]


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


@table(
    "grammar, path, words",
    [
        (a_grammar(GrammarKind.JSON_SCHEMA, "{"), "", "not JSON"),
        (of_schema({"items": {"type": "text"}}), ".items.type", "must be one of object"),
        (of_schema({"properties": {"a b": {"$ref": "#/x"}}}), '.properties["a b"].$ref', "nothing"),
        (of_schema({"pattern": "(a"}), ".pattern", "is not a valid regular expression"),
        (of_schema(False), "", "allows no value"),
        (a_grammar(GrammarKind.REGEX, "(a"), "", "a parenthesis is not closed"),
        (a_grammar(GrammarKind.REGEX, "(?=a)a"), "", "lookahead"),
        (of_tag([]), "", "must be an object"),
        (of_tag({}), "", "needs `format`, or `structures` and `triggers`"),
        (of_tag({"structures": [1], "triggers": ["a"]}), ".structures[0]", "begin, schema and end"),
        (of_tag({"format": {"type": "star"}}), ".format.type", "must be one of const_string"),
        (of_tag({"type": "const_string"}), ".value", "is required"),
        (of_tag({"type": "const_string", "value": 1}), ".value", "must be a string"),
        (
            of_tag({"type": "regex", "pattern": "a", "excludes": []}),
            ".excludes",
            "is not a member of",
        ),
        (of_tag({"type": "or", "elements": []}), ".elements", "not empty"),
        (
            of_tag({"type": "or", "elements": [{"type": "regex", "pattern": "["}]}),
            ".elements[0].pattern",
            "a bracket is not closed",
        ),
        (
            of_tag({"type": "json_schema", "json_schema": {"type": "x"}}),
            ".json_schema.type",
            "must be one of object",
        ),
        (
            of_tag({"type": "tags_with_separator", "separator": "", "tags": [{"type": "or"}]}),
            ".tags[0].elements",
            "is required",
        ),
        (
            of_tag({"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": []}),
            ".end",
            "not empty",
        ),
    ],
)
def test_an_error_names_the_path_of_its_cause(grammar, path, words):
    error = refused(grammar)

    assert isinstance(error, InvalidGrammar)
    assert error.param == FIELD + path
    assert words in error.message


def test_deeply_nested_tags_are_refused():
    tag = {"type": "any_text"}
    for _ in range(40):
        tag = {"type": "or", "elements": [tag]}

    assert "nests more than 30 levels" in refused(of_tag(tag)).message
