"""Custom tools: what they take is a text.

Templates and models know nothing but functions. So towards the model a custom tool is a
function of one string, and a replayed call of it is a call of that function: this file says
how. The way back, from the arguments of a call to its text, is `output/custom_calls.py`.
"""

from __future__ import annotations

import json
from typing import Final, assert_never

from serving.core.request import TextGrammar, TextSyntax, Tool

# The function's only argument.
INPUT: Final = "input"


def custom_tool(name: str, description: str | None, grammar: TextGrammar | None) -> Tool:
    """The function that the model is shown. With a grammar it is strict: no call of it is
    free."""
    text = {"type": "string", "description": _described(grammar)}
    parameters = {
        "type": "object",
        "properties": {INPUT: text},
        "required": [INPUT],
        "additionalProperties": False,
    }
    is_strict = None if grammar is None else True
    return Tool(name, description, parameters, is_strict, is_custom=True, input_grammar=grammar)


def custom_arguments(text: str) -> str:
    """The arguments of a call with this input, as JSON text."""
    return json.dumps({INPUT: text}, ensure_ascii=False, separators=(",", ":"))


def _described(grammar: TextGrammar | None) -> str:
    """Models that are held to a grammar write better when they know it."""
    if grammar is None:
        return "The input of the tool, as plain text."
    match grammar.syntax:
        case TextSyntax.REGEX:
            return f"Plain text that this regular expression matches: {grammar.definition}"
        case TextSyntax.LARK:
            return f"Plain text that fits this Lark grammar:\n{grammar.definition}"
        case _:
            assert_never(grammar.syntax)
