"""Tool calls of Mistral's models. Older models write all calls in one array:

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]

Devstral and models since 2025 write a head for each call. Some write `[CALL_ID]` and an id
between name and arguments; the id is dropped.

    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

Both forms are read, whichever is expected. An array without the tag is read as calls where it
calls one of the request's tools.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from serving.core.request import Tool
from serving.output.call_reader import CallReader, CallState
from serving.output.headed_call import HeadedCall
from serving.output.json_calls import JsonCalls
from serving.output.lexer import Tag
from serving.output.parse_events import Piece
from serving.output.parsers.base import CallsFamily

OPEN = "[TOOL_CALLS]"
ARGS = "[ARGS]"
_BARE = "[{"
_HEAD = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?:\[ARGS\]\s*)?", re.ASCII)


class _TaggedCalls:
    """Reads what follows the tag, in either form."""

    def __init__(self, opening: str) -> None:
        self._opening = opening
        self._reader: CallReader | None = None
        self._space = ""

    @property
    def state(self) -> CallState:
        return self._reader.state if self._reader else CallState.OPEN

    @property
    def rest(self) -> str:
        return self._reader.rest if self._reader else ""

    @property
    def untold(self) -> str:
        return self._reader.untold if self._reader else self._opening + self._space

    def feed(self, text: str) -> list[Piece]:
        if self._reader is not None:
            return self._reader.feed(text)
        text = self._space + text
        first = text.lstrip()[:1]
        if not first:
            self._space = text
            return []
        is_json = first in "[{"
        self._reader = JsonCalls(self._opening) if is_json else HeadedCall(self._opening, _HEAD)
        return self._reader.feed(text)

    def finish(self) -> list[Piece]:
        return self._reader.finish() if self._reader else []


def _new_reader(opening: str, tools: Sequence[Tool]) -> CallReader:
    if opening == _BARE:
        return JsonCalls.untagged(_BARE, frozenset(tool.name for tool in tools))
    return _TaggedCalls(opening)


MISTRAL = CallsFamily(
    Tag(OPEN, _BARE), _new_reader, special_texts=frozenset((OPEN, ARGS, "[CALL_ID]"))
)
