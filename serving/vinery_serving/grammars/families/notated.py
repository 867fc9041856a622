"""The calls of families that write arguments in Python, or in the notation of Gemma 4 and
FunctionGemma. Under a grammar the arguments are JSON, which the parsers of these families read as
well: in Python a dictionary after two stars."""

from vinery_serving.core.request import Tool, ToolChoice
from vinery_serving.grammars.family import CallTag, Family, GrammarFamily, arguments_tag, tag
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.output.parsers import gemma4, pythonic
from vinery_serving.output.parsers.json_calls import CallTags


def _calls(tags: CallTags) -> CallTag:
    def call(tool: Tool, choice: ToolChoice) -> StructuralTag:
        begin, end = f"{tags.open[0]}call:{tool.name}", tags.close[0]
        return tag(begin, arguments_tag(tool, choice), end)

    return call


GEMMA4 = Family(
    "gemma4",
    (("<|tool_call>",),),
    gemma4.GEMMA4,
    GrammarFamily(_calls(gemma4.TAGS), gemma4.TAGS.open[0], "", reasoning=gemma4.REASONING),
)
FUNCTIONGEMMA = Family(
    "functiongemma",
    (("<start_function_call>",),),
    gemma4.FUNCTIONGEMMA,
    GrammarFamily(_calls(gemma4.FUNCTION_TAGS), gemma4.FUNCTION_TAGS.open[0], ""),
)


def _python_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    return tag(f"{tool.name}(**", arguments_tag(tool, choice), ")")


_BARE = GrammarFamily(_python_call, pythonic.bare_opening, ", ", begin="[", end="]")
# `func_name1` is in the instructions of these templates.
LLAMA3_PYTHONIC = Family(
    "llama3_pythonic", (("<|start_header_id|>", "func_name1("),), pythonic.LLAMA3_PYTHONIC, _BARE
)
LLAMA4_PYTHONIC = Family(
    "llama4_pythonic", (("<|header_start|>", "func_name1("),), pythonic.LLAMA4_PYTHONIC, _BARE
)
_LFM2_BEGIN, _LFM2_END = pythonic.LFM2_TAGS.all
LFM2 = Family(
    "lfm2",
    (("<|tool_call_start|>",), ("<|tool_list_start|>",), ("List of tools: ", "<|im_start|>")),
    pythonic.LFM2,
    GrammarFamily(_python_call, _LFM2_BEGIN, ", ", begin=f"{_LFM2_BEGIN}[", end=f"]{_LFM2_END}"),
)
