"""The calls of Gemma 4 and FunctionGemma in their own notation (see the parser)."""

import json
import re

from vinery_serving.core.request import Tool, ToolChoice
from vinery_serving.grammars.arguments import ArgumentNotation, arguments_tag, notated_arguments_tag
from vinery_serving.grammars.family import CallTag, Family, GrammarFamily, tag
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.output.parsers import gemma4
from vinery_serving.output.parsers.json_calls import CallTags


def _notation(quote: str) -> ArgumentNotation:
    mark = json.dumps(quote)
    return ArgumentNotation(
        assign=":",
        comma=",",
        colon=":",
        key=re.compile(r"\w+"),
        constant=json.dumps,
        quote=quote,
        has_escapes=False,
        rules={
            "char": "char ::= [^<]",
            # Anything but the mark that ends it.
            "string": f'string ::= {mark} ([^<] | "<"+ [^<{quote[1]}])* {mark}',
        },
    )


def _calls(tags: CallTags, quote: str) -> CallTag:
    notation, begin, end = _notation(quote), tags.open[0], tags.close[0]

    def call(tool: Tool, choice: ToolChoice) -> StructuralTag:
        """A call. Where a grammar in Gemma's notation cannot enforce the schema, the arguments are
        JSON, which the parser reads as well."""
        arguments = notated_arguments_tag(tool, choice, notation)
        opening, closing = ("{", "}") if arguments else ("", "")
        content = arguments or arguments_tag(tool, choice)
        return tag(f"{begin}call:{tool.name}{opening}", content, f"{closing}{end}")

    return call


GEMMA4 = Family(
    "gemma4",
    (("<|tool_call>",),),
    gemma4.GEMMA4,
    GrammarFamily(
        _calls(gemma4.TAGS, gemma4.QUOTE), gemma4.TAGS.open[0], "", reasoning=gemma4.REASONING
    ),
)
FUNCTIONGEMMA = Family(
    "functiongemma",
    (("<start_function_call>",),),
    gemma4.FUNCTIONGEMMA,
    GrammarFamily(_calls(gemma4.FUNCTION_TAGS, gemma4.ESCAPE), gemma4.FUNCTION_TAGS.open[0], ""),
)
