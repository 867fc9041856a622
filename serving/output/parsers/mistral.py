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
from serving.output.lexer import Tag
from serving.output.parser import EventSink
from serving.output.parsers.base import CallReader, CallsFamily
from serving.output.parsers.json_calls import HeadedCall, JsonCalls

OPEN = "[TOOL_CALLS]"
ARGS = "[ARGS]"
_BARE = "[{"
_HEAD = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?:\[ARGS\]\s*)?", re.ASCII)


class _TaggedCalls(CallReader):
    """Reads what follows the tag, in either form."""

    def __init__(self, sink: EventSink, opening: str) -> None:
        super().__init__(sink, opening)
        self._opening = opening
        self._reader: CallReader | None = None

    def feed(self, text: str) -> None:
        self._lexer.feed(text)
        if self._reader is None and (first := self._lexer.text.lstrip()[:1]):
            sink, opening = self._sink, self._opening
            is_json = first in "[{"
            self._reader = JsonCalls(sink, opening) if is_json else HeadedCall(sink, opening, _HEAD)
        if self._reader is None:
            self.pending = self._opening + self._lexer.text
            return
        self._reader.feed(self._lexer.take_all())
        self._follow(self._reader)

    def finish(self) -> None:
        if self._reader is not None:
            self._reader.finish()
            self._follow(self._reader)

    def _follow(self, reader: CallReader) -> None:
        self.state, self.rest, self.pending = reader.state, reader.rest, reader.pending


def _new_reader(sink: EventSink, opening: str, tools: Sequence[Tool]) -> CallReader:
    if opening == _BARE:
        return JsonCalls.untagged(sink, _BARE, frozenset(tool.name for tool in tools))
    return _TaggedCalls(sink, opening)


MISTRAL = CallsFamily(
    Tag(OPEN, _BARE), _new_reader, special_texts=frozenset((OPEN, ARGS, "[CALL_ID]"))
)
