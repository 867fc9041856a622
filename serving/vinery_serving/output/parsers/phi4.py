"""Tool calls of Phi-4-mini, all in one array:

    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Some models write `<|tool_call|>` and `<|/tool_call|>` around the array instead.
"""

from vinery_serving.output.lexer import Lexer, Reading, Tag
from vinery_serving.output.parsers.base import calls_family
from vinery_serving.output.parsers.json_calls import CallTags, read_json_calls
from vinery_serving.output.writer import EventWriter

_TOKEN = "<|tool_call|>"
# The word without its bracket may be part of an answer about Python.
OPEN = Tag("functools[", _TOKEN)
_CLOSE = Tag("<|/tool_call|>", "</|tool_call|>")
_TAGS = CallTags((_TOKEN,), _CLOSE.strings)


def _read(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
    if opening == _TOKEN:
        return read_json_calls(lexer, writer, _TAGS)
    return read_json_calls(lexer, writer, is_array=True)


PHI4 = calls_family(OPEN, _read, [_TOKEN, *_CLOSE.strings])
