"""The grammar library of the real engine compiles the grammars of every family."""

import json

import pytest

from tests.output.rotation import rotated
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.tools import custom_tool
from vinery_serving.grammars.answers import answer_grammar, tool_grammar
from vinery_serving.grammars.families.registry import FAMILIES, by_name

from .conftest import Refusal

pytestmark = pytest.mark.live

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = [req.Tool("get_weather", "Get the weather", SCHEMA), req.Tool("ping")]
LEFT = 'start: sum\nsum: (sum "+")? INT?\n%import common.INT\n%import common.WS\n%ignore WS'
WANTED = {
    "a schema": req.Grammar(req.GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
    "a choice": req.Grammar(req.GrammarKind.CHOICE, '["a", "b\\"\\n", "é"]'),
    "a pattern": req.Grammar(req.GrammarKind.REGEX, r"^[^\s\]\\-]{2,20}(?:\u00e9|x)*$"),
    "a grammar": req.Grammar(req.GrammarKind.EBNF, 'root ::= "a" b*  # b\nb ::= [b\\]"] | "\\""\n'),
    "a tag": req.Grammar(
        req.GrammarKind.STRUCTURAL_TAG,
        json.dumps({"type": "or", "elements": [{"type": "regex", "pattern": "a"}]}),
    ),
}

# Compiling this pattern takes some hundred milliseconds, in any family.
LONG = req.Grammar(req.GrammarKind.REGEX, r"^[^\s\]\\-]{2,300}(?:\u00e9|x)*$")

CUSTOM = [
    custom_tool("run", None, req.TextGrammar(req.TextSyntax.REGEX, r"[a-z]+\n\"é", "tools[0]")),
    # The first rule begins with itself, and may be empty.
    custom_tool("add", None, req.TextGrammar(req.TextSyntax.LARK, LEFT, "tools[1]")),
]


FORMS = (sorted(FAMILIES), [False, True], WANTED)
CALLING = ([n for n in sorted(FAMILIES) if FAMILIES[n].grammar.supports_calls], [False, True])


def check_answer(
    refusal: Refusal, name: str, wanted: req.Grammar, *, opens_reasoning: bool
) -> None:
    for tools in ((), TOOLS):
        grammar = answer_grammar(
            by_name(name).grammar, wanted, opens_reasoning=opens_reasoning, tools=tools
        )

        assert refusal(grammar) is None


@pytest.mark.smoke
@table("name, opens_reasoning, wanted", rotated(*FORMS))
def test_the_grammar_of_an_answer_compiles(refusal, name, opens_reasoning, wanted):
    check_answer(refusal, name, WANTED[wanted], opens_reasoning=opens_reasoning)


@table("name", ["hermes", "onyx"])
def test_a_long_repetition_compiles(refusal, name):
    check_answer(refusal, name, LONG, opens_reasoning=True)


@pytest.mark.smoke
@table("name, opens_reasoning", rotated(*CALLING))
def test_the_grammar_of_custom_tools_compiles(refusal, name, opens_reasoning):
    tools, forms = [*TOOLS, *CUSTOM], by_name(name).grammar
    grammar = tool_grammar(
        forms, tools, req.ToolChoice(), parallel=True, opens_reasoning=opens_reasoning
    )

    assert grammar is not None
    assert refusal(grammar) is None
