"""Tool calls of Granite 3, all in one array. Granite 4 writes Hermes calls.

<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]
"""

from __future__ import annotations

from serving.output.lexer import Tag
from serving.output.parsers.base import CallsFamily
from serving.output.parsers.json_calls import JsonCalls

OPEN = Tag("<|tool_call|>")

GRANITE = CallsFamily(
    OPEN, lambda sink, opening, _: JsonCalls(sink, opening), special_texts=frozenset((OPEN.text,))
)
