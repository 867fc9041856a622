"""The families that write arguments as JSON. Their parsers show what a call is."""

import json

from vinery_serving.core.request import Tool, ToolChoice
from vinery_serving.grammars.arguments import arguments_tag
from vinery_serving.grammars.family import CallTag, Family, GrammarFamily, Marks, tag
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers import deepseek, granite, hermes, llama3, mistral, phi4
from vinery_serving.output.parsers.json_calls import json_family


def _object_calls(
    before: str = "", after: str = "", key: str = "arguments", name_key: str = '"name"'
) -> CallTag:
    """Calls that are one JSON object each. `name_key`: what stands before the name's colon."""

    def call(tool: Tool, choice: ToolChoice) -> StructuralTag:
        name = json.dumps(tool.name, ensure_ascii=False)
        begin = f'{before}{{{name_key}: {name}, "{key}": '
        return tag(begin, arguments_tag(tool, choice), f"}}{after}")

    return call


def _named_calls(before: str, after_name: str, after: str = "") -> CallTag:
    """Calls that are a name and a JSON object."""

    def call(tool: Tool, choice: ToolChoice) -> StructuralTag:
        return tag(f"{before}{tool.name}{after_name}", arguments_tag(tool, choice), after)

    return call


def _array(trigger: str, begin: str) -> GrammarFamily:
    """A family that writes all calls in one array."""
    return GrammarFamily(_object_calls(), trigger, ", ", begin=begin, end="]")


def _between(name: str, begin: str, end: str, call: CallTag) -> Family:
    """A family that writes one array between tags."""
    parser = json_family(Tag(begin), Tag(end))
    grammar = GrammarFamily(call, begin, ", ", begin=f"{begin}[", end=f"]{end}")
    return Family(name, ((begin,),), parser, grammar)


def _deepseek(name: str, marks: Marks, call: CallTag, separator: str) -> Family:
    begin, end = deepseek.CALLS_BEGIN.text, deepseek.CALLS_END.text
    grammar = GrammarFamily(call, begin, separator, begin=begin, end=end)
    return Family(name, marks, deepseek.DEEPSEEK, grammar)


HERMES = Family(
    "hermes",
    (("<tool_call>",),),
    hermes.HERMES,
    GrammarFamily(
        _object_calls(f"{hermes.OPEN.text}\n", f"\n{hermes.CLOSE.text}"), hermes.OPEN.text
    ),
)
LLAMA3 = Family(
    "llama3",
    (("<|start_header_id|>", "<|python_tag|>"), ("<|start_header_id|>", '"parameters": ')),
    llama3.LLAMA3,
    # Where a grammar holds free text to its calls, the trigger always begins one.
    GrammarFamily(_object_calls(key="parameters"), '{"name": ', "; "),
)
GRANITE = Family(
    "granite",
    (("<|start_of_role|>", "<|tool_call|>"),),
    granite.GRANITE,
    _array(granite.OPEN.text, f"{granite.OPEN.text}["),
)
# Nemotron Nano on Llama.
NEMOTRON = _between("nemotron", "<TOOLCALL>", "</TOOLCALL>", _object_calls())
HUNYUAN = _between("hunyuan", "<tool_calls>", "</tool_calls>", _object_calls())
# Cohere's Command models.
COHERE = _between(
    "cohere",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    _object_calls(key="parameters", name_key='"tool_call_id": "0", "tool_name"'),
)
PHI4 = Family(
    "phi4",
    (("functools[",), ("<|tool|>", "<|/tool|>")),
    phi4.PHI4,
    _array(phi4.OPEN.text, phi4.OPEN.text),
)
MISTRAL = Family(
    "mistral",
    (("[TOOL_CALLS]",),),
    mistral.MISTRAL,
    _array(mistral.OPEN, f"{mistral.OPEN}["),
)
DEVSTRAL = Family(
    "devstral",
    (("[TOOL_CALLS]", "[ARGS]"),),
    mistral.MISTRAL,
    GrammarFamily(_named_calls(mistral.OPEN, mistral.ARGS), mistral.OPEN, ""),
)
DEEPSEEK_V3 = _deepseek(
    "deepseek_v3",
    (("<｜tool▁calls▁begin｜>", "```json"),),
    _named_calls(
        f"{deepseek.CALL_BEGIN.text}function{deepseek.SEPARATOR}",
        "\n```json\n",
        f"\n```{deepseek.CALL_END.text}",
    ),
    "\n",
)
DEEPSEEK_V31 = _deepseek(
    "deepseek_v31",
    (("<｜tool▁calls▁begin｜>",),),
    _named_calls(deepseek.CALL_BEGIN.text, deepseek.SEPARATOR, deepseek.CALL_END.text),
    "",
)
