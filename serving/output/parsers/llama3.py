"""Tool calls of Llama 3.1 to 3.3 in JSON:

    {"name": "get_weather", "parameters": {"city": "Paris"}}

Some models write `<|python_tag|>` before the object and `; ` between several calls. Without
the tag only an object that calls one of the request's tools is a call: an answer may be JSON.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.core.request import Tool
from serving.output.lexer import Tag
from serving.output.parser import EventSink
from serving.output.parsers.base import CallsFamily
from serving.output.parsers.json_calls import JsonCalls

_BARE = "{"
OPEN = Tag("<|python_tag|>", _BARE)


def _new_reader(sink: EventSink, opening: str, tools: Sequence[Tool]) -> JsonCalls:
    if opening == _BARE:
        return JsonCalls.untagged(sink, _BARE, frozenset(tool.name for tool in tools))
    return JsonCalls(sink, opening)


LLAMA3 = CallsFamily(OPEN, _new_reader, special_texts=frozenset((OPEN.text,)))
