"""Hermes tool calls, which Qwen and many others write:

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Several calls may share one pair of tags, and the last closing tag may be missing.
"""

from vinery_serving.output.lexer import Tag
from vinery_serving.output.parsers.base import calls_family
from vinery_serving.output.parsers.json_calls import CallTags, read_json_calls

OPEN = Tag("<tool_call>")
CLOSE = Tag("</tool_call>")
_TAGS = CallTags(OPEN.strings, CLOSE.strings)

HERMES = calls_family(
    OPEN,
    lambda lexer, writer, *_: read_json_calls(lexer, writer, _TAGS),
    [OPEN.text, CLOSE.text],
)
