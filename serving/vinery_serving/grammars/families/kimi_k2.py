"""The calls of Kimi K2 (see the parser)."""

from vinery_serving.core.request import Tool, ToolChoice
from vinery_serving.grammars.arguments import arguments_tag
from vinery_serving.grammars.family import Family, GrammarFamily, sequence, tag, text
from vinery_serving.grammars.grammar.ebnf import StructuralTag, grammar_tag
from vinery_serving.output.parsers import kimi_k2


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    index = grammar_tag("root ::= [0-9]{1,3}")
    content = sequence(index, text(kimi_k2.ARGUMENTS), arguments_tag(tool, choice))
    return tag(f"{kimi_k2.CALL_BEGIN.text}functions.{tool.name}:", content, kimi_k2.CALL_END.text)


KIMI_K2 = Family(
    "kimi_k2",
    (("<|tool_calls_section_begin|>",),),
    kimi_k2.KIMI_K2,
    GrammarFamily(_call, kimi_k2.BEGIN.text, "", begin=kimi_k2.BEGIN.text, end=kimi_k2.END.text),
)
