"""The families whose calls have arguments in JSON under a grammar. The parsers show the form of a
call. Some of these models write arguments in Python, or in the notation of Gemma 4 and
FunctionGemma; their parsers read JSON as well: in Python a dictionary after two stars."""

import json
from typing import Final

from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.grammars.family import (
    CallTag,
    Family,
    GrammarFamily,
    Marks,
    arguments_tag,
    sequence,
    tag,
    text,
)
from vinery_serving.grammars.grammar.ebnf import StructuralTag, grammar_tag
from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers import gemma4, messages, pythonic
from vinery_serving.output.parsers import json_calls as parsers
from vinery_serving.output.parsers.base import ParserFamily, ReasoningTags
from vinery_serving.output.parsers.json_calls import (
    DEEPSEEK_TAGS,
    KIMI_K2_TAGS,
    CallTags,
    Section,
    json_family,
)
from vinery_serving.output.parsers.messages import CHANNEL, CONSTRAIN, MESSAGE, TO

_NAME: Final = "\0"  # where the name of the tool goes


def _calls(begin: str, end: str = "", *, is_json: bool = False) -> CallTag:
    """Calls whose arguments are between these texts. `is_json`: the name is in a JSON string."""

    def call(tool: Tool, choice: ToolChoice) -> StructuralTag:
        name = json.dumps(tool.name, ensure_ascii=False)[1:-1] if is_json else tool.name
        return tag(begin.replace(_NAME, name), arguments_tag(tool, choice), end)

    return call


def _object_calls(
    before: str = "", after: str = "", key: str = "arguments", name_key: str = '"name"'
) -> CallTag:
    """Calls that are one JSON object each. `name_key`: the text before the name's colon."""
    begin = f'{before}{{{name_key}: "{_NAME}", "{key}": '
    return _calls(begin, f"}}{after}", is_json=True)


def _array(trigger: str, begin: str) -> GrammarFamily:
    return GrammarFamily(_object_calls(), trigger, ", ", begin=begin, end="]")


def _between(name: str, begin: str, end: str, call: CallTag) -> Family:
    parser = json_family(Tag(begin), Tag(end))
    grammar = GrammarFamily(call, begin, ", ", begin=f"{begin}[", end=f"]{end}")
    return Family(name, ((begin,),), parser, grammar)


def _in_section(
    name: str, marks: Marks, parser: ParserFamily, tags: Section, call: CallTag, separator: str = ""
) -> Family:
    begin, end = tags.begin.text, tags.end.text
    return Family(name, marks, parser, GrammarFamily(call, begin, separator, begin=begin, end=end))


HERMES = Family(
    "hermes",
    (("<tool_call>",),),
    parsers.HERMES,
    GrammarFamily(
        _object_calls(f"{parsers.HERMES_OPEN.text}\n", f"\n{parsers.HERMES_CLOSE.text}"),
        parsers.HERMES_OPEN.text,
    ),
)
LLAMA3 = Family(
    "llama3",
    (("<|start_header_id|>", "<|python_tag|>"), ("<|start_header_id|>", '"parameters": ')),
    parsers.LLAMA3,
    # Where a grammar checks calls in free text, the trigger always begins a call.
    GrammarFamily(_object_calls(key="parameters"), '{"name": ', "; "),
)
GRANITE = Family(
    "granite",
    (("<|start_of_role|>", "<|tool_call|>"),),
    parsers.GRANITE,
    _array(parsers.GRANITE_OPEN.text, f"{parsers.GRANITE_OPEN.text}["),
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
    parsers.PHI4,
    _array(parsers.PHI4_OPEN.text, parsers.PHI4_OPEN.text),
)
MISTRAL = Family(
    "mistral",
    (("[TOOL_CALLS]",),),
    parsers.MISTRAL,
    _array(parsers.MISTRAL_OPEN, f"{parsers.MISTRAL_OPEN}["),
)
DEVSTRAL = Family(
    "devstral",
    (("[TOOL_CALLS]", "[ARGS]"),),
    parsers.MISTRAL,
    GrammarFamily(
        _calls(f"{parsers.MISTRAL_OPEN}{_NAME}{parsers.MISTRAL_ARGS}"), parsers.MISTRAL_OPEN, ""
    ),
)
DEEPSEEK_V3 = _in_section(
    "deepseek_v3",
    (("<｜tool▁calls▁begin｜>", "```json"),),
    parsers.DEEPSEEK,
    DEEPSEEK_TAGS,
    _calls(
        f"{DEEPSEEK_TAGS.call_begin.text}function{parsers.DEEPSEEK_SEPARATOR}{_NAME}\n```json\n",
        f"\n```{DEEPSEEK_TAGS.call_end.text}",
    ),
    "\n",
)
DEEPSEEK_V31 = _in_section(
    "deepseek_v31",
    (("<｜tool▁calls▁begin｜>",),),
    parsers.DEEPSEEK,
    DEEPSEEK_TAGS,
    _calls(
        f"{DEEPSEEK_TAGS.call_begin.text}{_NAME}{parsers.DEEPSEEK_SEPARATOR}",
        DEEPSEEK_TAGS.call_end.text,
    ),
)


def _indexed_call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    index = grammar_tag("root ::= [0-9]{1,3}")
    content = sequence(index, text(parsers.KIMI_K2_ARGUMENTS), arguments_tag(tool, choice))
    return tag(
        f"{KIMI_K2_TAGS.call_begin.text}functions.{tool.name}:", content, KIMI_K2_TAGS.call_end.text
    )


KIMI_K2 = _in_section(
    "kimi_k2", (("<|tool_calls_section_begin|>",),), parsers.KIMI_K2, KIMI_K2_TAGS, _indexed_call
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
    """In free text the tag begins at the recipient: the text before varies."""
    name, arguments = f"{TO}{tool.name}", arguments_tag(tool, choice)
    if choice.mode is not ToolMode.AUTO:
        return tag(f"{CHANNEL}commentary {name}{_HEAD_ENDS[0]}", arguments, messages.CALL)
    head_end = {"type": "or", "elements": [text(end) for end in _HEAD_ENDS]}
    return tag(name, sequence(head_end, arguments), messages.CALL)


GPTOSS = Family(
    "gptoss",
    ((CHANNEL, MESSAGE),),
    messages.GPTOSS,
    GrammarFamily(
        _message,
        trigger=TO,
        separator=messages.NEXT,
        answer_begin=f"{CHANNEL}final{MESSAGE}",
        reasoning=messages.GPTOSS_REASONING,
        may_reason_first=True,
    ),
)


def _gemma(
    name: str, parser: ParserFamily, tags: CallTags, reasoning: ReasoningTags | None = None
) -> Family:
    begin = tags.open[0]
    call = _calls(f"{begin}call:{_NAME}", tags.close[0])
    return Family(name, ((begin,),), parser, GrammarFamily(call, begin, "", reasoning=reasoning))


GEMMA4 = _gemma("gemma4", gemma4.GEMMA4, gemma4.TAGS, gemma4.REASONING)
FUNCTIONGEMMA = _gemma("functiongemma", gemma4.FUNCTIONGEMMA, gemma4.FUNCTION_TAGS)

_python_call = _calls(f"{_NAME}(**", ")")
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
