"""The translation of patterns, Lark grammars, structural tags and tools takes steps in proportion
to their size, or is refused by its budget. Steps and calls are counted, never time."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.operations import calls
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.errors import InvalidGrammar, InvalidRequest
from vinery_serving.core.field_limits import REQUEST_STEPS, SCHEMA_STEPS
from vinery_serving.grammars import texts
from vinery_serving.grammars.answers import answer_grammar, tool_grammar
from vinery_serving.grammars.families.registry import by_name, family_names
from vinery_serving.grammars.grammar.steps import step_budget
from vinery_serving.grammars.json_schema import translator
from vinery_serving.output.parsers.argument_types import ParameterTypes

Work = Callable[[], Any]
REQUIRED = req.ToolChoice(req.ToolMode.REQUIRED)
PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "integer", "minimum": 1}},
    "required": ["a"],
}
# Those without reasoning, which changes nothing about calls.
FAMILIES = [
    each for each in family_names() if "+" not in each and by_name(each).grammar.supports_calls
]
# One of each form of arguments: JSON, tags, Python and Gemma's.
FORMS = ("hermes", "qwen3coder", "llama4_pythonic", "gemma4", "gptoss")


def anew(work: Work) -> Any:
    """Translate what no cache knows."""
    for cache in (translator.CACHE, texts.CACHE):
        cache.clear()
    return work()


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


LINEAR: dict[str, tuple[Callable[[int], Work], int]] = {
    "a literal pattern": (lambda n: pattern("ab" * n), 100),
    "alternatives of a pattern": (lambda n: pattern("|".join(f"a{at}b" for at in range(n))), 60),
    "groups of a pattern": (lambda n: pattern("(a|bc)?" * n), 60),
    "groups in groups": (lambda n: pattern("(" * n + "a|b" + ")" * n), 20),
    "repetitions in repetitions": (lambda n: pattern("(" * n + "a" + "{1,9})" * n), 10),
    "sets of a pattern": (lambda n: pattern("[\\W\\s]" * n), 60),
    "a sequence of a rule": (lambda n: lark("start: " + '"a" B ' * n + "\nB: /b+/"), 100),
    "options of a rule": (lambda n: lark("start: " + "|".join(f'"a{at}"' for at in range(n))), 100),
    "rules that lead to one": (lambda n: rules(n, lambda at: f"r{at - 1}"), 100),
    "rules that add a text": (lambda n: rules(n, lambda at: f'r{at - 1} "b"'), 100),
    "rules that double": (lambda n: rules(n, lambda at: f"r{at - 1} r{at - 1}"), 100),
    "rules that use each other": (lambda n: rules(n, lambda at: f'"x" | r{(at * 7) % n}'), 100),
    "terminals": (lambda n: lark("start: " + " ".join(f"/a{at}[b-d]+/" for at in range(n))), 50),
    "caseless sets": (lambda n: lark("start: " + r"/[\u0100-\u0480]/i " * n), 20),
    "ignored texts": (
        lambda n: lark("start: A\nA: /a/\n" + "\n".join(f'%ignore "b{at}"' for at in range(n))),
        50,
    ),
    "choices": (lambda n: answer(req.GrammarKind.CHOICE, [f"choice {at}" for at in range(n)]), 200),
    "a long choice": (lambda n: answer(req.GrammarKind.CHOICE, ["é\n" * n]), 2000),
    "tags": (lambda n: tag({"type": "sequence", "elements": ends(n)}), 10),
    "ends of a tag": (lambda n: tag({**ends(1)[0], "end": [f"</{at}>" for at in range(n)]}), 10),
    "schemas of tags": (
        lambda n: tag({"type": "or", "elements": [{"type": "json_schema", "json_schema": {}}] * n}),
        20,
    ),
    **{f"tools of {each}": (partial(many_tools, each), 10) for each in FORMS},
    **{f"parameters of {each}": (partial(many_parameters, each), 10) for each in FORMS},
}


def steps_of(work: Work) -> int | None:
    """Return how many steps a translation takes; None if it is refused as too large."""
    with step_budget() as budget:
        try:
            anew(work)
        except InvalidGrammar as error:
            assert "too large" in error.message or "more than" in error.message
            return None
        return budget.num_spent


@table("name", LINEAR)
def test_twice_the_size_takes_about_twice_the_steps(name):
    family, size = LINEAR[name]
    steps = [steps_of(family(number)) for number in (size, 2 * size)]

    assert steps[0] is not None
    assert steps[1] is None or steps[1] <= 2.3 * steps[0]


@table("name", LINEAR)
def test_a_step_is_a_few_calls(name):
    family, size = LINEAR[name]
    anew(family(1))  # what is loaded once
    found = []

    num_calls = calls(lambda: found.append(steps_of(family(4 * size))))

    assert num_calls <= 12 * (found[0] or REQUEST_STEPS.default) + 30_000


HELD: dict[str, Work] = {
    "a long pattern": pattern("a" * 1_000_000),
    "groups of a pattern": pattern("(" * 50_000 + ")" * 50_000),
    "repetitions in repetitions": pattern("((a{1,1000}){1,1000}){1,1000}"),
    "a pattern that backtracks": pattern("(a*)*(a|aa)+(a|a?)+b"),
    "a rule that begins with itself": lark('start: start "a" | "a"'),
    "a rule that is only itself": lark("start: start"),
    "a large repetition": lark('start: "a"~1..100000000'),
    "repetitions of a rule": lark(f"start: {'(' * 30}A{')~1..1000' * 30}\nA: /a/"),
    "a long grammar": lark("start: A\n" * 100_000),
    "parentheses": lark(f"start: {'(' * 5000}A{')' * 5000}\nA: /a/"),
    "the longest grammar": lark("start: " + "x y z " * 3300 + '\nx: "a"\ny: "b"\nz: "c"\n'),
    "a large terminal": lark("start: A\nA: /(a|b)*a(a|b){99}c/"),
    "intersected ends": tag({**ends(1)[0], "end": [f"{at}" * 900 for at in range(99)]}),
}


@table("name", HELD)
def test_a_hostile_grammar_is_translated_or_refused_within_its_budget(name):
    def work() -> None:
        with suppress(InvalidGrammar):
            anew(HELD[name])

    assert calls(work) <= 12 * SCHEMA_STEPS.default


def test_lists_in_lists_of_tags_do_not_double_the_grammar_and_many_tools_are_translated():
    lengths = [len(anew(tag(lists_in_lists(depth))).source) for depth in (4, 8)]
    assert lengths[1] <= 2.3 * lengths[0]

    page = {"type": "integer", "minimum": 1, "maximum": 100}
    schema = {**PARAMETERS, "properties": {"page": page, "per_page": page}, "required": ["page"]}
    assert steps_of(
        tools([req.Tool(f"f{at}", "", {**schema, "title": f"{at}"}) for at in range(128)])
    )


def recursive(number: int) -> Any:
    """A parameter with `number` references to itself, each of which has as many again."""
    options = [{"$ref": "#/$defs/n"}] * number
    return {**parameters(0), "properties": {"a": options[0]}, "$defs": {"n": {"anyOf": options}}}


@table("family", FAMILIES)
def test_a_parameter_of_recursive_options_is_refused_within_the_budget(family):
    def work() -> None:
        with pytest.raises(InvalidRequest, match=r"too large|refers to itself"):
            anew(tools([req.Tool("f", "", recursive(200))], family))

    assert calls(work) <= 3 * REQUEST_STEPS.default


def test_the_types_of_an_argument_are_read_once_for_each_schema():
    """They are read while an answer streams, also for schemas that were never translated."""
    types = ParameterTypes([req.Tool("f", "", recursive(100))])

    num_calls = calls(lambda: types.of("f", "a"))

    assert num_calls <= 100_000
    assert "object" in types.of("f", "a")


INVALID: list[Any] = [
    {"properties": {"a": {"type": "string", "minLength": "x"}}},
    {"properties": {"a": {"type": "string", "maxLength": []}}},
    {"properties": {"a": {"type": "string", "minLength": 10**400}}},
    {"properties": {"a": {"type": [[]]}}},
    {"properties": {"a": {"enum": 5}}},
    {"properties": {"a": {"$ref": 5}}},
    {"properties": {"a": {"items": {"minimum": 10**400}}}},
    {"properties": {"a": {}}, "required": [[1]]},
    {"properties": {"a": {}}, "required": 5},
    {"properties": 5},
]


@table("schema", INVALID)
@table("family", FAMILIES)
def test_an_invalid_schema_of_a_tool_is_refused_and_the_types_of_its_arguments_known(
    family, schema
):
    tool = req.Tool("f", "", {"type": "object", **schema}, strict=True)

    with pytest.raises(InvalidRequest) as caught:
        anew(tools([tool], family))

    assert (caught.value.param or "").startswith("tools")
    assert ParameterTypes([req.Tool("f", "", schema)]).of("f", "a")
