"""Schemas, patterns, Lark grammars, tags and tools that are small to send and large to translate.

The work grows with the size, and counts refuse larger sources. A worker process with a limit on CPU
time does the rest (`tests/gateway/workers`). Calls are counted, never time.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.hostile.corpus.schemas import SCHEMAS as HOSTILE_SCHEMAS
from tests.operations import calls
from tests.output.rotation import CALLING
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.errors import InvalidGrammar, InvalidRequest
from vinery_serving.core.field_limits import SCHEMA_NAMES
from vinery_serving.grammars import texts
from vinery_serving.grammars.answers import answer_grammar, tool_grammar
from vinery_serving.grammars.families.registry import by_name
from vinery_serving.grammars.json_schema import translator
from vinery_serving.grammars.json_schema.nodes import SchemaError
from vinery_serving.grammars.json_schema.translator import json_grammar, json_tag
from vinery_serving.output.parsers.argument_types import ParameterTypes

Work = Callable[[], Any]
TEXT = {"type": "string"}
REQUIRED = req.ToolChoice(req.ToolMode.REQUIRED)
# A family for each form of arguments: JSON, tags, Python and Gemma's.
FORMS = ("hermes", "qwen3coder", "llama4_pythonic", "gemma4", "gptoss")


def uncached(work: Work) -> Any:
    for module in (translator, texts):
        module._known_grammar.cache_clear()
    return work()


# -- Sources ------------------------------------------------------------------------------


PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "integer", "minimum": 1}},
    "required": ["a"],
}


def an_object(number: int, **words: Any) -> Any:
    return {"type": "object", "properties": {f"p{at}": TEXT for at in range(number)}, **words}


def each(number: int, schema: Callable[[int], Any]) -> Any:
    return {"properties": {f"p{at}": schema(at) for at in range(number)}}


def doubled_references(number: int) -> Any:
    """Definitions that each refer twice to the next: 2 ** number ways to the last."""
    links = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(number)}
    return {"$defs": {**links, f"d{number}": TEXT}, "$ref": "#/$defs/d0"}


def values(number: int) -> list[Any]:
    return [{"name": f"value {at}", "at": [at, at + 0.5, None]} for at in range(number)]


def answer(kind: req.GrammarKind, source: Any, family: str = "plain", tools: Any = ()) -> Work:
    text = source if isinstance(source, str) else json.dumps(source)
    grammar, forms = req.Grammar(kind, text, "response_format"), by_name(family).grammar
    return lambda: answer_grammar(forms, grammar, opens_reasoning=False, tools=tools)


def pattern(text: str) -> Work:
    return answer(req.GrammarKind.REGEX, text)


def tag(value: Any, family: str = "hermes") -> Work:
    """A structural tag beside a tool, so that it becomes a grammar."""
    return answer(req.GrammarKind.STRUCTURAL_TAG, value, family, [req.Tool("f")])


def tools(listed: list[req.Tool], family: str = "hermes") -> Work:
    forms = by_name(family).grammar
    return lambda: tool_grammar(forms, listed, REQUIRED, parallel=True, opens_reasoning=False)


def lark(definition: str) -> Work:
    grammar = req.TextGrammar(req.TextSyntax.LARK, definition, "tools[0].definition")
    return tools([req.Tool("f", is_custom=True, input_grammar=grammar)])


def rules(number: int, body: Callable[[int], str]) -> Work:
    """A Lark grammar that begins with the last rule."""
    lines = "\n".join(f"r{at}: {body(at)}" for at in range(1, number + 1))
    return lark(f'start: r{number}\nr0: "a"\n{lines}\n')


def ends(number: int) -> Any:
    free = {"type": "any_text"}
    return [{"type": "tag", "begin": "<", "content": free, "end": f"</{n}>"} for n in range(number)]


def lists_in_lists(depth: int) -> Any:
    value: Any = {"type": "const_string", "value": "x" * 100}
    for _ in range(depth):
        inner = [{"begin": "<", "content": value, "end": ">"}]
        value = {"type": "tags_with_separator", "separator": ",", "tags": inner}
    return value


def parameters(number: int, **words: Any) -> Any:
    names = {f"p{at}": {"type": "string", "maxLength": 9} for at in range(number)}
    return {"type": "object", "properties": names, **words}


def many_tools(family: str, number: int) -> Work:
    schemas = [{**PARAMETERS, "title": f"{at}"} for at in range(number)]
    return tools([req.Tool(f"f{at}", "", schema) for at, schema in enumerate(schemas)], family)


def many_parameters(family: str, number: int) -> Work:
    return tools([req.Tool("f", "", parameters(number))], family)


# -- Work -------------------------------------------------------------------------------

SCHEMAS: dict[str, tuple[Callable[[int], Any], int]] = {
    "properties": (an_object, 100),
    "properties beside others": (lambda n: an_object(n, additionalProperties=TEXT), 30),
    "names with a pattern": (lambda n: an_object(n, propertyNames={"pattern": "^p[0-9]+$"}), 100),
    "texts of an enum": (lambda n: {"enum": [f"value {at}" for at in range(n)]}, 200),
    "parts of allOf with an enum": (lambda n: {"allOf": [{"enum": values(20)}] * n}, 20),
    "options of anyOf": (lambda n: {"anyOf": [an_object(at % 3) for at in range(n)]}, 50),
    "references that double": (doubled_references, 10),
    "patterns": (lambda n: each(n, lambda at: {"pattern": f"^a{at}[bc]+$"}), 30),
    "counted patterns": (
        lambda n: each(n, lambda at: {"pattern": f"a{at}[bc]+$", "maxLength": 9}),
        5,
    ),
    "bounded numbers": (lambda n: each(n, lambda at: {"type": "integer", "maximum": at + 9}), 5),
}

GRAMMARS: dict[str, tuple[Callable[[int], Work], int]] = {
    "alternatives of a pattern": (lambda n: pattern("|".join(f"a{at}b" for at in range(n))), 60),
    "repetitions in repetitions": (lambda n: pattern("(" * n + "a" + "{1,9})" * n), 10),
    "rules that double": (lambda n: rules(n, lambda at: f"r{at - 1} r{at - 1}"), 100),
    "terminals": (lambda n: lark("start: " + " ".join(f"/a{at}[b-d]+/" for at in range(n))), 50),
    "choices": (lambda n: answer(req.GrammarKind.CHOICE, [f"choice {at}" for at in range(n)]), 200),
    "tags": (lambda n: tag({"type": "sequence", "elements": ends(n)}), 10),
    **{f"tools of {each}": (partial(many_tools, each), 10) for each in FORMS},
    **{f"parameters of {each}": (partial(many_parameters, each), 10) for each in FORMS},
}


def of_schema(build: Callable[[int], Any]) -> Callable[[int], Work]:
    return lambda number: partial(json_grammar, build(number), is_strict=True)


LINEAR = {name: (of_schema(build), size) for name, (build, size) in SCHEMAS.items()} | GRAMMARS


@table("name", LINEAR)
def test_twice_the_size_is_about_twice_the_work(name):
    build, size = LINEAR[name]
    uncached(build(3))  # loads data that later calls share

    num_calls = [calls(partial(uncached, build(number))) for number in (size, 2 * size)]

    assert num_calls[1] <= 2.4 * num_calls[0]


# Each never ended, took many seconds, or needed gigabytes, as did the schemas of `tests/hostile`.
HOSTILE: dict[str, Any] = {
    **{name: build(min(size, 1 << 15)) for name, (size, build) in HOSTILE_SCHEMAS.items()},
    "parts of allOf": {"allOf": [{"maxLength": at} for at in range(20_000)]},
    "patterns with large automata": each(
        1000, lambda at: {"pattern": f"(a|b)*a(a|b){{30}}{at}", "maxLength": 90}
    ),
    "parts of allOf with properties": {
        "allOf": [
            {"properties": {f"p{at}": TEXT}, "additionalProperties": True} for at in range(300)
        ]
    },
    "large bounds inside each other": {
        "type": "array",
        "minItems": 10**6,
        "items": {"type": "array", "minItems": 10**6},
    },
    "intersected patterns": {"allOf": [{"pattern": f"(a|b)*a(a|b){{{at}}}"} for at in range(59)]},
}

HOSTILE_GRAMMARS: dict[str, Work] = {
    "a long pattern": pattern("a" * 1_000_000),
    "repetitions in repetitions": pattern("((a{1,1000}){1,1000}){1,1000}"),
    "a pattern that backtracks": pattern("(a*)*(a|aa)+(a|a?)+b"),
    "a large repetition": lark('start: "a"~1..100000000'),
    "repetitions of a rule": lark(f"start: {'(' * 30}A{')~1..1000' * 30}\nA: /a/"),
    "the longest grammar": lark("start: " + "x y z " * 3300 + '\nx: "a"\ny: "b"\nz: "c"\n'),
    "a large terminal": lark("start: A\nA: /(a|b)*a(a|b){99}c/"),
    "intersected ends": tag({**ends(1)[0], "end": [f"{at}" * 900 for at in range(99)]}),
}


@table("is_strict", [False, True])
@table("name", HOSTILE)
def test_a_hostile_schema_is_translated_or_refused(name, is_strict):
    with suppress(SchemaError):
        assert json_grammar(HOSTILE[name], is_strict=is_strict)


@table("name", HOSTILE_GRAMMARS)
def test_a_hostile_grammar_is_translated_or_refused(name):
    with suppress(InvalidGrammar):
        uncached(HOSTILE_GRAMMARS[name])


@table(
    "schema, words",
    [
        ({"const": "a" * (SCHEMA_NAMES.value + 1)}, "has more than 120000 characters in names"),
        (an_object(3000, minProperties=1500), "is too large: use fewer options"),
        (
            each(9, lambda at: {"pattern": f"(a|b)*a(a|b){{30}}{at}", "maxLength": 90}),
            "is too large: use fewer",
        ),
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
    assert json_grammar(an_object(size, required=["p0"], additionalProperties=False))


def test_amounts_of_money_and_the_largest_bound_are_translated():
    for factor in (0.01, 0.25, 0.05, 2.5):
        assert json_grammar({"type": "number", "multipleOf": factor}, is_strict=True)
    assert json_grammar({"type": "number", "maximum": sys.float_info.max})


NUMBER = 10**309


@table(
    "schema, path",
    [
        *(
            ({word: NUMBER}, f"guided_json.{word}")
            for word in ("minimum", "multipleOf", "minItems")
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


def test_lists_in_lists_of_tags_do_not_double_the_grammar_and_many_tools_are_translated():
    lengths = [len(uncached(tag(lists_in_lists(depth))).source) for depth in (4, 8)]
    assert lengths[1] <= 2.3 * lengths[0]

    page = {"type": "integer", "minimum": 1, "maximum": 100}
    schema = {**PARAMETERS, "properties": {"page": page, "per_page": page}, "required": ["page"]}
    assert uncached(
        tools([req.Tool(f"f{at}", "", {**schema, "title": f"{at}"}) for at in range(128)])
    )


def recursive_options(number: int) -> Any:
    """A parameter with `number` references to itself, each of which has as many again."""
    options = [{"$ref": "#/$defs/n"}] * number
    return {**parameters(0), "properties": {"a": options[0]}, "$defs": {"n": {"anyOf": options}}}


@table("family", CALLING)
def test_a_parameter_of_recursive_options_is_refused(family):
    with pytest.raises(InvalidRequest, match=r"too large|refers to itself"):
        uncached(tools([req.Tool("f", "", recursive_options(200))], family))


def test_the_types_of_an_argument_are_read_once_for_each_schema():
    """Types are read while an answer streams, also for schemas that were never translated."""
    types = ParameterTypes([req.Tool("f", "", recursive_options(100))])

    num_calls = calls(lambda: types.of("f", "a"))

    assert num_calls <= 100_000
    assert "object" in types.of("f", "a")


def test_the_types_of_an_invalid_schema_are_known():
    """Types are read of schemas that no grammar was made for, too."""
    invalid: list[Any] = [{"type": [[]]}, {"enum": 5}, {"$ref": 5}, {"anyOf": 5}, {"allOf": 5}]
    schemas = [{"properties": {"a": each}} for each in invalid] + [{"properties": 5}]

    for schema in schemas:
        assert ParameterTypes([req.Tool("f", "", schema)]).of("f", "a")
