"""Tool calls of Mistral's models. Older ones write all calls in one array:

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]

newer ones a head and arguments for each call, see `devstral`. Both are read, whichever is
expected. Models that forget the tag, and begin with the array, are understood where the
array calls one of the request's tools.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from serving.constraints.shapes import json_array_shape
from serving.core.request import Tool, ToolChoice
from serving.output.call_reader import CallReader, CallState
from serving.output.calls import CallsParser
from serving.output.formats.base import Format, Shape
from serving.output.formats.plain import PlainParser
from serving.output.headed_call import HeadedCall
from serving.output.json_calls import JsonCalls
from serving.output.lexer import Tag
from serving.output.parse_events import Parser, Piece

OPEN = "[TOOL_CALLS]"
ARGS = "[ARGS]"
_CALL_ID = "[CALL_ID]"
_BARE = "[{"
_OPENING = Tag(OPEN, _BARE)
_HEAD = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?:\[ARGS\]\s*)?", re.ASCII)

SPECIAL_TEXTS = frozenset({OPEN, ARGS, _CALL_ID})


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


def mistral_parser(tools: Sequence[Tool]) -> Parser:
    """Reads every form that Mistral's models write."""
    if not tools:
        return PlainParser()
    names = frozenset(tool.name for tool in tools)

    def new_reader(opening: str) -> CallReader:
        return JsonCalls.untagged(_BARE, names) if opening == _BARE else _TaggedCalls(opening)

    return CallsParser(_OPENING, new_reader)


class Mistral(Format):
    """The family of models that were trained on the array."""

    name = "mistral"
    makes_calls = True
    special_texts = SPECIAL_TEXTS

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        return mistral_parser(tools)

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        return json_array_shape(tools, choice, parallel=parallel, trigger=OPEN, begin=f"{OPEN}[")
