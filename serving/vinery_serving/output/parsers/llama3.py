"""Tool calls of Llama 3.1 to 3.3 in JSON:

    {"name": "get_weather", "parameters": {"city": "Paris"}}

Some models write `<|python_tag|>` before the object and `; ` between several calls, or all calls
in an array. Without the tag only an object that calls one of the request's tools is a call: an
answer may be JSON.
"""

from collections.abc import Sequence

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag
from vinery_serving.output.parsers.base import calls_family
from vinery_serving.output.parsers.json_calls import CallTags, read_bare_calls, read_json_calls
from vinery_serving.output.writer import EventWriter

_BARE = ("{", "[{")
OPEN = Tag("<|python_tag|>", *_BARE)
_TAGS = CallTags((OPEN.text,))


def _read(lexer: Lexer, writer: EventWriter, opening: str, tools: Sequence[Tool]) -> Reading[None]:
    if opening in _BARE:
        return read_bare_calls(lexer, writer, tools)
    return read_json_calls(lexer, writer, _TAGS)


LLAMA3 = calls_family(OPEN, _read, [OPEN.text])
