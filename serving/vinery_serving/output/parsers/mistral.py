"""Tool calls of Mistral's models. Older models write all calls in one array:

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]

Devstral and models since 2025 write a head for each call. Some write `[CALL_ID]` and an id
between name and arguments; the id is dropped.

    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

Both forms are read, whichever is expected. An array without the tag is read as calls where it
calls one of the request's tools.
"""

import re
from collections.abc import Sequence

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag
from vinery_serving.output.parsers.base import calls_family
from vinery_serving.output.parsers.json_calls import (
    CallTags,
    read_bare_calls,
    read_headed_call,
    read_json_calls,
    read_residue,
)
from vinery_serving.output.writer import EventWriter

OPEN = "[TOOL_CALLS]"
ARGS = "[ARGS]"
_TAGS = CallTags((OPEN,))
_BARE = "[{"
_HEAD = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?P<mark>\[ARGS\]\s*)?", re.ASCII
)


def _read(lexer: Lexer, writer: EventWriter, opening: str, tools: Sequence[Tool]) -> Reading[None]:
    if opening == _BARE:
        yield from read_bare_calls(lexer, writer, tools)
    elif (yield from lexer.next_of("[", "{")):
        yield from read_json_calls(lexer, writer, _TAGS)
    else:
        yield from read_headed_call(lexer, writer, _HEAD, _TAGS, {tool.name for tool in tools})
        with lexer.after_call():
            yield from read_residue(lexer, _TAGS)


MISTRAL = calls_family(Tag(OPEN, _BARE), _read, [OPEN, ARGS, "[CALL_ID]"])
