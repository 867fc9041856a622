"""The calls of families that write arguments as JSON. Their parsers show what a call is."""

from __future__ import annotations

import json

from serving.constraints.arguments import arguments_tag
from serving.constraints.families.base import Calls, CallTag, tag
from serving.constraints.grammar.ebnf import StructuralTag
from serving.core.request import Tool, ToolChoice
from serving.output.parsers import deepseek, granite, hermes, mistral, phi4


def _object(tool: Tool, choice: ToolChoice, key: str = "arguments") -> StructuralTag:
    """A call as one JSON object."""
    name = json.dumps(tool.name, ensure_ascii=False)
    return tag(f'{{"name": {name}, "{key}": ', arguments_tag(tool, choice), "}")


def _hermes(tool: Tool, choice: ToolChoice) -> StructuralTag:
    call = _object(tool, choice)
    begin, end = f"{hermes.OPEN.text}\n{call['begin']}", f"{call['end']}\n{hermes.CLOSE.text}"
    return tag(begin, call["content"], end)


def _llama3(tool: Tool, choice: ToolChoice) -> StructuralTag:
    return _object(tool, choice, "parameters")


def _devstral(tool: Tool, choice: ToolChoice) -> StructuralTag:
    return tag(f"{mistral.OPEN}{tool.name}{mistral.ARGS}", arguments_tag(tool, choice), "")


def _deepseek_v3(tool: Tool, choice: ToolChoice) -> StructuralTag:
    head = f"function{deepseek.SEPARATOR}{tool.name}\n```json\n"
    begin, end = deepseek.CALL_BEGIN.text + head, f"\n```{deepseek.CALL_END.text}"
    return tag(begin, arguments_tag(tool, choice), end)


def _deepseek_v31(tool: Tool, choice: ToolChoice) -> StructuralTag:
    begin = f"{deepseek.CALL_BEGIN.text}{tool.name}{deepseek.SEPARATOR}"
    return tag(begin, arguments_tag(tool, choice), deepseek.CALL_END.text)


def _array(trigger: str, begin: str) -> Calls:
    """A family that writes all calls in one array."""
    return Calls(_object, trigger, ", ", begin=begin, end="]")


def _deepseek(call: CallTag, separator: str) -> Calls:
    begin, end = deepseek.CALLS_BEGIN.text, deepseek.CALLS_END.text
    return Calls(call, begin, separator, begin=begin, end=end)


HERMES_CALLS = Calls(_hermes, hermes.OPEN.text)
# Where a grammar holds free text to its calls, this text always begins one.
LLAMA3_CALLS = Calls(_llama3, '{"name": ', "; ")
GRANITE_CALLS = _array(granite.OPEN.text, f"{granite.OPEN.text}[")
PHI4_CALLS = _array(phi4.OPEN.text, phi4.OPEN.text)
MISTRAL_CALLS = _array(mistral.OPEN, f"{mistral.OPEN}[")
DEVSTRAL_CALLS = Calls(_devstral, mistral.OPEN, "")
DEEPSEEK_V3_CALLS = _deepseek(_deepseek_v3, "\n")
DEEPSEEK_V31_CALLS = _deepseek(_deepseek_v31, "")
