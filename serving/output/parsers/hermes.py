"""Hermes tool calls, which Qwen and many others write:

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Several calls may share one pair of tags, and the last closing tag may be missing.
"""

from __future__ import annotations

from serving.output.lexer import Tag
from serving.output.parsers.base import CallsFamily
from serving.output.parsers.json_calls import JsonCalls

OPEN = Tag("<tool_call>")
CLOSE = Tag("</tool_call>")

HERMES = CallsFamily(
    OPEN,
    lambda sink, opening, _: JsonCalls(sink, opening, close=CLOSE),
    special_texts=frozenset((OPEN.text, CLOSE.text)),
)
