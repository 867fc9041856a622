"""Tool calls of Granite 3, all in one array. Granite 4 writes Hermes calls.

<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Granite 3.1 may write `<tool_call>` instead.
"""

from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers.base import calls_family
from vinery_serving.output.parsers.json_calls import CallTags, read_json_calls

OPEN = Tag("<|tool_call|>", "<tool_call>")
_TAGS = CallTags(OPEN.strings)

GRANITE = calls_family(
    OPEN, lambda lexer, writer, *_: read_json_calls(lexer, writer, _TAGS), OPEN.strings
)
