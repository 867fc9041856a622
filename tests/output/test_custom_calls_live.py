"""The real engine, forced to write the inputs of custom tools in every family's form.

The written input is read back, and fits the grammar, with the escapes and marks of any family.
"""

import re

import pytest

from tests.tables import table
from vinery_serving.core.request import TextGrammar, TextSyntax, Tool, ToolChoice, ToolMode
from vinery_serving.core.result import ChoiceResult
from vinery_serving.core.tools import custom_tool

from .rotation import CALLING, rotated
from .tiny_chat import asked, straight

pytestmark = pytest.mark.live

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
MODES = (CALLING, [ToolMode.NAMED, ToolMode.REQUIRED])
NAMED = ToolChoice(ToolMode.NAMED, "run")
every_family = table("name", CALLING)


def a_tool(syntax: TextSyntax, definition: str) -> Tool:
    return custom_tool("run", "Run code", TextGrammar(syntax, definition, "tools[0]"))


def input_of(result: ChoiceResult) -> str:
    [call] = result.tool_calls
    assert call.is_custom
    assert call.name == "run"
    assert result.text == ""
    return call.arguments


@pytest.mark.smoke
@table("name, mode", rotated(*MODES))
def test_an_input_fits_its_regular_expression(model, name, mode):
    model.use(straight(name))
    choice = NAMED if mode is ToolMode.NAMED else ToolChoice(mode)
    tools = [a_tool(TextSyntax.REGEX, PATTERN)]

    chat = asked("Run it.", tools=tools, tool_choice=choice, parallel_tool_calls=False)

    assert re.fullmatch(PATTERN, input_of(model.answer(chat)))


@every_family
def test_an_input_fits_its_lark_grammar(model, name):
    model.use(straight(name))
    chat = asked("Add it.", tools=[a_tool(TextSyntax.LARK, SUMS)], tool_choice=NAMED)

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
    tools = [a_tool(TextSyntax.REGEX, "|".join(map(re.escape, ends)))]

    assert input_of(model.answer(asked("Run it.", tools=tools, tool_choice=NAMED))) in ends
