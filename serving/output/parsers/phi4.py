"""Tool calls of Phi-4-mini, all in one array:

    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Some models write `<|tool_call|>` and `<|/tool_call|>` around the array instead.
"""

from __future__ import annotations

from serving.output.json_calls import JsonCalls
from serving.output.lexer import Tag
from serving.output.parsers.base import CallsFamily

_TOKEN = "<|tool_call|>"
# The word without its bracket may be part of an answer about Python.
OPEN = Tag("functools[", _TOKEN)
_CLOSE = Tag("<|/tool_call|>", "</|tool_call|>")


def _new_reader(opening: str, _: object) -> JsonCalls:
    is_token = opening == _TOKEN
    return JsonCalls(opening, close=_CLOSE) if is_token else JsonCalls(opening, is_array=True)


PHI4 = CallsFamily(OPEN, _new_reader, special_texts=frozenset((_TOKEN, *_CLOSE.texts)))
