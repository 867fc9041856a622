"""The calls of Kimi K2 (see the parser)."""

from __future__ import annotations

from serving.constraints.arguments import arguments_tag
from serving.constraints.families.base import Calls, tag
from serving.constraints.grammar.ebnf import StructuralTag, grammar_tag
from serving.core.request import Tool, ToolChoice
from serving.output.parsers.kimi_k2 import ARGUMENTS, BEGIN, CALL_BEGIN, CALL_END, END


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    elements = [
        grammar_tag("root ::= [0-9]{1,3}"),
        {"type": "const_string", "value": ARGUMENTS},
        arguments_tag(tool, choice),
    ]
    begin = f"{CALL_BEGIN.text}functions.{tool.name}:"
    return tag(begin, {"type": "sequence", "elements": elements}, CALL_END.text)


KIMI_K2_CALLS = Calls(_call, BEGIN.text, "", begin=BEGIN.text, end=END.text)
