"""One tool call whose name stands in a head before its arguments:

    get_weather[ARGS]{"city": "Paris"}

The arguments are a JSON object, which is passed on while it grows.
"""

from __future__ import annotations

import re
from typing import Final

from serving.output.call_reader import CallState
from serving.output.json_text import JsonValue
from serving.output.parse_events import CallArgs, CallEnded, CallStarted, Piece

# A head without a brace for longer than this is no head.
_MAX_HEAD_CHARS: Final = 512


class HeadedCall:
    """Reads one call after `opening`. `head` matches all that stands before the first brace;
    its group `name` is the name of the tool."""

    def __init__(self, opening: str, head: re.Pattern[str]) -> None:
        self.state = CallState.OPEN
        self.rest = ""
        self.untold = opening
        self._opening = opening
        self._pattern = head
        self._head = ""
        self._arguments: JsonValue | None = None

    def feed(self, text: str) -> list[Piece]:
        """The pieces that more text makes. Not to be called once the state is not OPEN."""
        if self._arguments is not None:
            return self._in_arguments(self._arguments, text)
        self._head += text
        brace = self._head.find("{")
        if max(brace, 0) > _MAX_HEAD_CHARS or (brace < 0 and len(self._head) > _MAX_HEAD_CHARS):
            return self._break()
        if brace < 0:
            self.untold = self._opening + self._head
            return []
        head = self._pattern.fullmatch(self._head, 0, brace)
        if head is None:
            return self._break()
        self.untold = ""
        self._arguments = JsonValue()
        return [
            CallStarted(head["name"]),
            *self._in_arguments(self._arguments, self._head[brace:]),
        ]

    def finish(self) -> list[Piece]:
        """The text is over. A call that is cut inside its arguments stays open."""
        return []

    def _in_arguments(self, arguments: JsonValue, text: str) -> list[Piece]:
        end = arguments.scan(text, 0)
        grown: list[Piece] = [CallArgs(text[:end])] if text[:end] else []
        if end is None:
            return grown
        self.state = CallState.ENDED
        self.rest = text[end:]
        return [*grown, CallEnded()]

    def _break(self) -> list[Piece]:
        """What follows the opening may hold an opening again."""
        self.state = CallState.BROKEN
        self.untold = self._opening
        self.rest = self._head
        return []
