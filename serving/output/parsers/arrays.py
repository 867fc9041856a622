"""Tool calls in one array between tags:

    <TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>

in Nemotron Nano on Llama, between `<tool_calls>` in Hunyuan, and in Cohere's Command models as

    <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": ...}]
    <|END_ACTION|>

without the line break.
"""

from typing import Final

from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers.json_calls import json_family

NEMOTRON_TAGS: Final = (Tag("<TOOLCALL>"), Tag("</TOOLCALL>"))
HUNYUAN_TAGS: Final = (Tag("<tool_calls>"), Tag("</tool_calls>"))
COHERE_TAGS: Final = (Tag("<|START_ACTION|>"), Tag("<|END_ACTION|>"))

NEMOTRON: Final = json_family(*NEMOTRON_TAGS)
HUNYUAN: Final = json_family(*HUNYUAN_TAGS)
COHERE: Final = json_family(*COHERE_TAGS)
