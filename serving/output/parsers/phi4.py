"""Tool calls of Phi-4-mini, all in one array:

    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Some models write `<|tool_call|>` and `<|/tool_call|>` around the array instead.
"""

from __future__ import annotations

from serving.output.lexer import Tag
from serving.output.parser import EventSink
from serving.output.parsers.base import CallsFamily
from serving.output.parsers.json_calls import JsonCalls

_TOKEN = "<|tool_call|>"
# The word without its bracket may be part of an answer about Python.
OPEN = Tag("functools[", _TOKEN)
_CLOSE = Tag("<|/tool_call|>", "</|tool_call|>")


def _new_reader(sink: EventSink, opening: str, _: object) -> JsonCalls:
    if opening == _TOKEN:
        return JsonCalls(sink, opening, close=_CLOSE)
    return JsonCalls(sink, opening, is_array=True)


PHI4 = CallsFamily(OPEN, _new_reader, special_texts=frozenset((_TOKEN, *_CLOSE.texts)))
