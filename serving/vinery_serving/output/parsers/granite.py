"""Tool calls of Granite 3, all in one array. Granite 4 writes Hermes calls.

<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Granite 3.1 may write `<tool_call>` instead.
"""

from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers.json_calls import json_family

OPEN = Tag("<|tool_call|>", "<tool_call>")

GRANITE = json_family(OPEN)
