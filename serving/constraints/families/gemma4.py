"""The calls of Gemma 4 in its own notation (see the parser)."""

import json
import re
from typing import Final

from vinery_serving.constraints.arguments import (
    ArgumentNotation,
    arguments_tag,
    notated_arguments_tag,
)
from vinery_serving.constraints.family import Family, GrammarFamily, tag
from vinery_serving.constraints.grammar.ebnf import StructuralTag
from vinery_serving.core.request import Tool, ToolChoice
from vinery_serving.output.parsers import gemma4

_NOTATION: Final = ArgumentNotation(
    assign=":",
    comma=",",
    colon=":",
    key=re.compile(r"\w+"),
    constant=json.dumps,
    quote=gemma4.QUOTE,
    has_escapes=False,
    rules={
        "char": "char ::= [^<]",
        # Anything but the mark that ends it.
        "string": r'''string ::= "<|\"|>" ([^<] | "<"+ [^<|])* "<|\"|>"''',
    },
)


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """A call. Where a grammar in Gemma's notation cannot enforce the schema, the arguments are
    JSON, which the parser reads as well."""
    arguments = notated_arguments_tag(tool, choice, _NOTATION)
    begin, end = ("{", "}") if arguments else ("", "")
    content = arguments or arguments_tag(tool, choice)
    return tag(f"{gemma4.OPEN.text}call:{tool.name}{begin}", content, f"{end}{gemma4.CLOSE.text}")


GEMMA4 = Family(
    "gemma4",
    (("<|tool_call>",),),
    gemma4.GEMMA4,
    GrammarFamily(_call, gemma4.OPEN.text, "", reasoning=gemma4.REASONING),
)
