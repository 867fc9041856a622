"""The calls of families that write them in Python (see the parser `pythonic`)."""

from vinery_serving.core.request import Tool, ToolChoice
from vinery_serving.grammars.arguments import PYTHON_NOTATION, arguments_tag, notated_arguments_tag
from vinery_serving.grammars.family import Family, GrammarFamily, tag
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.output.parsers import pythonic


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """A call. Where a grammar in Python's notation cannot enforce the schema, the arguments are
    JSON: a dictionary after two stars."""
    arguments = notated_arguments_tag(tool, choice, PYTHON_NOTATION)
    stars = "" if arguments else "**"
    return tag(f"{tool.name}({stars}", arguments or arguments_tag(tool, choice), ")")


def _grammar(tags: pythonic.ListTags) -> GrammarFamily:
    """A family that differs from others only in its tags."""
    if tags.is_bare:
        return GrammarFamily(_call, pythonic.bare_opening, separator=", ", begin="[", end="]")
    begin, end = f"{tags.begin}[", f"]{tags.end}"
    return GrammarFamily(_call, tags.begin, ", ", begin=begin, end=end)


# `func_name1` is in the instructions of these templates.
LLAMA3_PYTHONIC = Family(
    "llama3_pythonic",
    (("<|start_header_id|>", "func_name1("),),
    pythonic.LLAMA3_PYTHONIC,
    _grammar(pythonic.LLAMA3_TAGS),
)
LLAMA4_PYTHONIC = Family(
    "llama4_pythonic",
    (("<|header_start|>", "func_name1("),),
    pythonic.LLAMA4_PYTHONIC,
    _grammar(pythonic.LLAMA4_TAGS),
)
LFM2 = Family(
    "lfm2",
    (("<|tool_call_start|>",), ("<|tool_list_start|>",), ("List of tools: ", "<|im_start|>")),
    pythonic.LFM2,
    _grammar(pythonic.LFM2_TAGS),
)
