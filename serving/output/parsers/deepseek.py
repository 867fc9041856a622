"""Tool calls of DeepSeek. V3 and R1 write the arguments in a fence:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

V3.1 and later have neither kind nor fence, and no line breaks (here for the reader only):

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>
    {"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Both are read, whichever is expected. The outer tags may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from serving.output.call_reader import CallState
from serving.output.headed_call import HeadedCall
from serving.output.lexer import Lexer, Tag
from serving.output.parse_events import Piece
from serving.output.parsers.base import CallsFamily

CALLS_BEGIN, CALLS_END = Tag("<｜tool▁calls▁begin｜>"), Tag("<｜tool▁calls▁end｜>")
CALL_BEGIN, CALL_END = Tag("<｜tool▁call▁begin｜>"), Tag("<｜tool▁call▁end｜>")
_OPENING = Tag(CALLS_BEGIN.text, CALL_BEGIN.text)
SEPARATOR = "<｜tool▁sep｜>"
_FENCE = Tag("```")
_HEAD = re.compile(
    rf"\s*(?:\w+{SEPARATOR}\s*(?=[\w.-]))?(?P<name>[\w.-]+)"
    rf"\s*(?:{SEPARATOR}\s*)?(?:```(?:json)?\s*)?",
    re.ASCII,
)


class _Calls:
    """Reads what follows the first opening tag, up to and with the last closing tag."""

    def __init__(self, opening: str) -> None:
        self.state = CallState.OPEN
        self.rest = ""
        self._lexer = Lexer()
        self._syntax = opening
        self._has_calls = False
        self._call: HeadedCall | None = None
        self._step: Callable[[], list[Piece]] = self._between
        if opening == CALL_BEGIN.text:
            self._begin_call()

    @property
    def untold(self) -> str:
        if self._call is not None:
            return self._call.untold
        return "" if self._has_calls else self._syntax

    def feed(self, text: str) -> list[Piece]:
        self._lexer.feed(text)
        pieces: list[Piece] = []
        while True:
            step = self._step
            pieces += step()
            if self._step == step or self.state is not CallState.OPEN:
                return pieces

    def finish(self) -> list[Piece]:
        self._syntax += self._lexer.take_all()
        return []

    def _between(self) -> list[Piece]:
        text = self._lexer.text
        is_begun = self._lexer.take_space_and(CALL_BEGIN)
        if is_begun:
            self._syntax += text[: len(text) - len(self._lexer.text)]
            self._begin_call()
        elif is_begun is False and not self._has_calls:
            self._end(CallState.BROKEN)
        elif is_begun is False and self._lexer.take_space_and(CALLS_END) is not None:
            self._end(CallState.ENDED)
        return []

    def _begin_call(self) -> None:
        self._call = HeadedCall(self._syntax, _HEAD)
        self._step = self._in_call

    def _in_call(self) -> list[Piece]:
        assert self._call is not None
        pieces = self._call.feed(self._lexer.take_all())
        self._lexer.feed(self._call.rest)
        if self._call.state is CallState.BROKEN:
            self._end(CallState.BROKEN)
        elif self._call.state is CallState.ENDED:
            self._call, self._syntax, self._has_calls = None, "", True
            self._step = self._at_fence
        return pieces

    def _at_fence(self) -> list[Piece]:
        if self._lexer.take_space_and(_FENCE) is not None:
            self._step = self._at_call_end
        return []

    def _at_call_end(self) -> list[Piece]:
        if self._lexer.take_space_and(CALL_END) is not None:
            self._step = self._between
        return []

    def _end(self, state: CallState) -> None:
        self.state = state
        self.rest = self._lexer.take_all()


DEEPSEEK = CallsFamily(
    _OPENING,
    lambda opening, _: _Calls(opening),
    special_texts=frozenset(
        (CALLS_BEGIN.text, CALL_BEGIN.text, SEPARATOR, CALL_END.text, CALLS_END.text)
    ),
)
