"""The families that write arguments as JSON. Their parsers show what a call is."""

import json
from typing import Final

from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.grammars.arguments import arguments_tag
from vinery_serving.grammars.family import (
    CallTag,
    Family,
    GrammarFamily,
    Marks,
    sequence,
    tag,
    text,
)
from vinery_serving.grammars.grammar.ebnf import StructuralTag, grammar_tag
from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers import (
    deepseek,
    gptoss,
    granite,
    hermes,
    kimi_k2,
    llama3,
    mistral,
    phi4,
)
from vinery_serving.output.parsers.gptoss import CALL, CHANNEL, CONSTRAIN, NEXT, TO
from vinery_serving.output.parsers.json_calls import json_family
from vinery_serving.output.parsers.messages import MESSAGE


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


def _indexed_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    index = grammar_tag("root ::= [0-9]{1,3}")
    content = sequence(index, text(kimi_k2.ARGUMENTS), arguments_tag(tool, choice))
    return tag(f"{kimi_k2.CALL_BEGIN.text}functions.{tool.name}:", content, kimi_k2.CALL_END.text)


KIMI_K2 = Family(
    "kimi_k2",
    (("<|tool_calls_section_begin|>",),),
    kimi_k2.KIMI_K2,
    GrammarFamily(
        _indexed_call, kimi_k2.BEGIN.text, "", begin=kimi_k2.BEGIN.text, end=kimi_k2.END.text
    ),
)

# How the head of a call goes on after its name, the usual form first.
_HEAD_ENDS: Final = (
    f" {CONSTRAIN}json{MESSAGE}",
    f"{CHANNEL}commentary {CONSTRAIN}json{MESSAGE}",
    f"{CHANNEL}commentary json{MESSAGE}",
    f" json{MESSAGE}",
    MESSAGE,
)


def _message(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """In free text the tag begins at the recipient: what comes before it differs."""
    name, arguments = f"{TO}{tool.name}", arguments_tag(tool, choice)
    if choice.mode is not ToolMode.AUTO:
        return tag(f"{CHANNEL}commentary {name}{_HEAD_ENDS[0]}", arguments, CALL)
    head_end = {"type": "or", "elements": [text(end) for end in _HEAD_ENDS]}
    return tag(name, sequence(head_end, arguments), CALL)


GPTOSS = Family(
    "gptoss",
    ((CHANNEL, MESSAGE),),
    gptoss.GPTOSS,
    GrammarFamily(
        _message,
        trigger=TO,
        separator=NEXT,
        answer_begin=f"{CHANNEL}final{MESSAGE}",
        reasoning=gptoss.REASONING,
        may_reason_first=True,
    ),
)
