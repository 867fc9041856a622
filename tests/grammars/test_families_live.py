"""The real engine under the grammars of every family: each grammar compiles, and the parser reads
what the model writes, with all values of a schema and all signs that some notation escapes.

The reference model's tokenizer has no special tokens of these families, so the model spells them
out. Grammar and parser are tested all the same.
"""

import json
import re
from typing import Any

import pytest

from tests.output.builders import object_of
from tests.output.rotation import CALLING, rotated
from tests.output.tiny_chat import Model, asked, calls_of, straight
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.events import FinishReason, ToolCallDelta
from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.core.result import ChoiceResult
from vinery_serving.core.tools import custom_tool
from vinery_serving.grammars.answers import answer_grammar, tool_grammar
from vinery_serving.grammars.families.registry import FAMILIES, by_name

pytestmark = pytest.mark.live

QUESTION = "What is the weather in Paris and in London?"
REQUIRED = ToolChoice(ToolMode.REQUIRED)
# All values have a bounded length: under an unfamiliar grammar a weak model finds no end.
RANK = {"type": "integer", "minimum": 1, "maximum": 9}
CITY = {"enum": ["Paris; }", 'London "]']}
PICK = Tool("pick", "Pick a city", object_of(city=CITY, rank=RANK, is_big={"type": "boolean"}))
LONG = {"type": "string", "minLength": 60, "maxLength": 70}
NOTE = Tool("note", "Write something down", object_of(text=LONG))
PING = Tool("ping", "Ping")
TOOLS = (PICK, NOTE, PING)
NAMES = {tool.name for tool in TOOLS}

every_family = table("name", CALLING)


def named(name: str) -> ToolChoice:
    return ToolChoice(ToolMode.NAMED, name)


def a_custom_tool(name: str, syntax: req.TextSyntax, definition: str) -> Tool:
    return custom_tool(name, "Run code", req.TextGrammar(syntax, definition, "tools[0]"))


# -- Compiling ----------------------------------------------------------------------------

# The first rule begins with itself, and may be empty.
LEFT = 'start: sum\nsum: (sum "+")? INT?\n%import common.INT\n%import common.WS\n%ignore WS'
COMPILED = [
    Tool("strict", None, PICK.parameters, strict=True),
    Tool("dated", None, object_of([], day={"type": "string", "format": "date"})),
    PING,
    a_custom_tool("run", req.TextSyntax.REGEX, r"[a-z]+\n\"é"),
    a_custom_tool("add", req.TextSyntax.LARK, LEFT),
]
WANTED = {
    "a schema": req.Grammar(req.GrammarKind.JSON_SCHEMA, json.dumps(PICK.parameters)),
    "a choice": req.Grammar(req.GrammarKind.CHOICE, '["a", "b\\"\\n", "é"]'),
    "a pattern": req.Grammar(req.GrammarKind.REGEX, r"^[^\s\]\\-]{2,20}(?:\u00e9|x)*$"),
    "a grammar": req.Grammar(req.GrammarKind.EBNF, 'root ::= "a" b*  # b\nb ::= [b\\]"] | "\\""\n'),
    "a tag": req.Grammar(
        req.GrammarKind.STRUCTURAL_TAG,
        json.dumps({"type": "or", "elements": [{"type": "regex", "pattern": "a"}]}),
    ),
}
# Compiling this pattern takes some hundred milliseconds, in any family.
LONG_PATTERN = req.Grammar(req.GrammarKind.REGEX, r"^[^\s\]\\-]{2,300}(?:\u00e9|x)*$")
FORMS = (sorted(FAMILIES), [False, True], WANTED.values())


@pytest.mark.smoke
@table("name, opens, wanted", [*rotated(*FORMS), ("hermes", True, LONG_PATTERN)])
def test_the_grammar_of_an_answer_compiles(refusal, name, opens, wanted):
    for tools in ((), (PICK, PING)):
        family = by_name(name).grammar
        grammar = answer_grammar(family, wanted, opens_reasoning=opens, tools=tools)

        assert refusal(grammar) is None


@pytest.mark.smoke
@every_family
@table("opens", [False, True])
@table("parallel", [False, True])
@table("choice", [ToolChoice(), REQUIRED, named("strict")])
def test_every_tool_grammar_compiles(refusal, name, opens, parallel, choice):
    family = by_name(f"think+{name}" if opens else name).grammar
    grammar = tool_grammar(family, COMPILED, choice, parallel=parallel, opens_reasoning=opens)

    assert grammar is not None
    assert refusal(grammar) is None


# -- Calls --------------------------------------------------------------------------------


def is_pick(arguments: Any) -> bool:
    return (
        arguments.keys() == {"city", "rank", "is_big"}
        and arguments["city"] in CITY["enum"]
        and arguments["rank"] in range(1, 10)
        and isinstance(arguments["is_big"], bool)
    )


@every_family
def test_a_tool_is_named_after_reasoning_and_long_arguments_arrive_in_many_deltas(model, name):
    model.use(by_name(f"think+{name}"))
    chat = asked(QUESTION, tools=TOOLS, tool_choice=named("pick"), thinking=True)
    result = model.answer(chat)
    [(called, arguments)] = calls_of(result)
    assert called == "pick"
    assert is_pick(arguments)
    assert (result.text, result.finish_reason) == ("", FinishReason.TOOL_CALLS)
    assert result.reasoning

    model.use(straight(name))
    result = model.answer(asked(QUESTION, tools=TOOLS, tool_choice=named("ping")))
    assert calls_of(result) == [("ping", {})]

    events, is_ended = model.events(asked(QUESTION, tools=TOOLS, tool_choice=named("note")))
    deltas = [event.text for event in events if isinstance(event, ToolCallDelta)]
    assert is_ended
    # Special tokens inside a string count for the grammar, but produce no text.
    assert 20 <= len(json.loads("".join(deltas))["text"]) <= 70
    # In Python or in Gemma's notation, arguments are sent when they are complete.
    assert len(deltas) > 3 or "python" in name or "gemma" in name or name == "lfm2"


@every_family
def test_calls_are_required_one_or_several_and_strict_tools_leave_the_model_free(model, name):
    model.use(straight(name))
    chat = asked(QUESTION, tools=TOOLS, tool_choice=REQUIRED, parallel_tool_calls=False)
    result = model.answer(chat)
    [(called, _)] = calls_of(result)
    assert called in NAMES
    assert result.text == ""

    strict = Tool(PICK.name, PICK.description, PICK.parameters, strict=True)
    result = model.answer(asked("Hello!", tools=(strict, PING)))
    assert result.text.strip() == "Hello! How can I help you today?"
    assert result.tool_calls == ()

    # The model chooses how many, and may reach its limit inside a call.
    several = asked(QUESTION, tools=(PICK, PING), tool_choice=REQUIRED)
    result, is_ended = model.answer_part(several, max_tokens=300)
    assert result.tool_calls
    for call in result.tool_calls if is_ended else result.tool_calls[:-1]:
        assert call.name == "ping" or is_pick(json.loads(call.arguments))
    assert result.text == "" or not is_ended


# -- Arguments ----------------------------------------------------------------------------


def arguments_of(model: Model, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the model writes for parameters of this schema."""
    model.use(straight(name))
    tools = [Tool("take", None, schema)]

    [(called, arguments)] = calls_of(
        model.answer(asked(QUESTION, tools=tools, tool_choice=named("take")))
    )

    assert called == "take"
    return arguments


DEFINITIONS = {"size": {"enum": ["s", "m", 40]}}
SCHEMAS = [
    ({"type": "integer", "minimum": 1, "maximum": 5}, lambda it: it in range(1, 6)),
    ({"type": ["boolean", "null"]}, lambda it: it in (True, False, None)),
    ({"enum": ["a)", 'b"', "c}\nd", "é'"]}, lambda it: it in ("a)", 'b"', "c}\nd", "é'")),
    ({"enum": [None, "no", 7]}, lambda it: it in (None, "no", 7)),
    ({"const": {"a": [1, None, {"b": "x]"}]}}, lambda it: it == {"a": [1, None, {"b": "x]"}]}),
    ({"type": "string", "minLength": 2, "maxLength": 4}, lambda it: len(it) <= 4),
    (
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        lambda it: len(it) in (2, 3) and set(it) <= {True, False},
    ),
    (
        object_of(["inner"], name={"type": "string", "maxLength": 3}, inner=object_of(n=RANK)),
        lambda it: it["inner"]["n"] in range(10) and it.keys() <= {"name", "inner"},
    ),
    ({"$ref": "#/$defs/size"}, lambda it: it in ("s", "m", 40)),
    ({"anyOf": [{"$ref": "#/$defs/size"}, {"type": "null"}]}, lambda it: True),
]
PATTERNED = (
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]$"},
    lambda it: re.fullmatch("[A-Z]{2}-[0-9]", it),
)
BETWEEN_TAGS = ("qwen3coder", "glm4", "minicpm5", "onyx")
ARGUMENTS = (CALLING, SCHEMAS)


@pytest.mark.smoke
@table(
    "name, schema_and_check",
    [*rotated(*ARGUMENTS, each=2), *((name, PATTERNED) for name in BETWEEN_TAGS)],
)
def test_an_argument_fits_its_schema(model, name, schema_and_check):
    schema, fits = schema_and_check

    arguments = arguments_of(model, name, object_of(it=schema) | {"$defs": DEFINITIONS})

    assert arguments.keys() == {"it"}
    assert fits(arguments["it"])


@every_family
def test_required_arguments_are_there_and_others_come_in_order(model, name):
    properties = {key: {"type": "boolean"} for key in "abcd"}
    for required in (["b", "d"], []):
        arguments = arguments_of(model, name, object_of(required, **properties))

        assert set(required) <= arguments.keys() <= set("abcd")
        assert list(arguments) == sorted(arguments)


# -- Inputs of custom tools ---------------------------------------------------------------

# The signs that some notation escapes or ends with.
PATTERN = r"""[a-c]{2}\n["'\\]{2}é\t<[/|]"""
SUMS = r"""
start: "sum\n" sum ";"
sum: DIGIT ("+" sum)~0..2
DIGIT: "1".."3"
%ignore " "
"""
AS_LARK = re.compile(r" *sum\n *([1-3] *\+ *)*[1-3] *; *")
BEGUN_AS_LARK = re.compile(r" *(s|su|sum|sum\n *([1-3] *\+ *)*([1-3] *(; *)?)?)?")
MODES = (CALLING, [named("run"), REQUIRED])


def input_of(result: ChoiceResult) -> str:
    [call] = result.tool_calls
    assert call.is_custom
    assert call.name == "run"
    assert result.text == ""
    return call.arguments


@pytest.mark.smoke
@table("name, choice", rotated(*MODES))
def test_an_input_fits_its_regular_expression(model, name, choice):
    model.use(straight(name))
    tools = [a_custom_tool("run", req.TextSyntax.REGEX, PATTERN)]

    chat = asked("Run it.", tools=tools, tool_choice=choice, parallel_tool_calls=False)

    assert re.fullmatch(PATTERN, input_of(model.answer(chat)))


@every_family
def test_an_input_fits_its_lark_grammar(model, name):
    model.use(straight(name))
    tools = [a_custom_tool("run", req.TextSyntax.LARK, SUMS)]
    chat = asked("Add it.", tools=tools, tool_choice=named("run"))

    result, is_ended = model.answer_part(chat, max_tokens=160)

    # The model may write blanks or sums until any limit. In Python a call that is cut is not sent.
    if is_ended or result.tool_calls:
        assert (AS_LARK if is_ended else BEGUN_AS_LARK).fullmatch(input_of(result))


@every_family
def test_a_text_that_ends_the_familys_notation_is_not_written(model, name):
    """The model cannot choose a text that the family's tag or quote would end; the other texts are
    offered."""
    ends = ("</parameter>", "</arg_value>", "</param>", '<|"|>', "</atem:parameter>", "x")
    model.use(straight(name))
    tools = [a_custom_tool("run", req.TextSyntax.REGEX, "|".join(map(re.escape, ends)))]

    chat = asked("Run it.", tools=tools, tool_choice=named("run"))

    assert input_of(model.answer(chat)) in ends
