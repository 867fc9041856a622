"""Hermes tool calls, which Qwen and many others write:

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Several calls may share one pair of tags, and the last closing tag may be missing.
"""

from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers.json_calls import json_family

OPEN = Tag("<tool_call>")
CLOSE = Tag("</tool_call>")

HERMES = json_family(OPEN, CLOSE)
