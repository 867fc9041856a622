"""Tool calls of Kimi K2:

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0
    <|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>

without the line break. The number counts the calls of the conversation. Clients do not get it: the
renderer of prompts counts anew.
"""

import re

from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers.json_calls import Section

BEGIN, END = Tag("<|tool_calls_section_begin|>"), Tag("<|tool_calls_section_end|>")
CALL_BEGIN, CALL_END = Tag("<|tool_call_begin|>"), Tag("<|tool_call_end|>")
ARGUMENTS = "<|tool_call_argument_begin|>"
_HEAD = re.compile(
    rf"\s*(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?\s*(?P<mark>{re.escape(ARGUMENTS)})\s*",
    re.ASCII,
)

KIMI_K2 = Section(BEGIN, END, CALL_BEGIN, CALL_END, _HEAD).family(ARGUMENTS)
