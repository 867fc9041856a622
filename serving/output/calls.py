"""An answer in which text and tool calls stand in any order.

Text may stand before, between and after calls. White space alone between calls belongs to
the syntax; with text beside it, it is the author's. What is no call although it begins like
one is given back as text.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.output.call_reader import CallReader, CallState
from serving.output.lexer import Lexer, Tag
from serving.output.parse_events import CallEnded, CallStarted, Piece, Text


class CallsParser:
    """Reads text and calls in turn. `opening` begins calls; `new_reader` is given the
    spelling of it that was met, and reads on from there."""

    is_reasoning = False

    def __init__(self, opening: Tag, new_reader: Callable[[str], CallReader]) -> None:
        self._opening = opening
        self._new_reader = new_reader
        self._lexer = Lexer()
        self._reader: CallReader | None = None
        # White space that is part of the syntax unless text shows that it is not.
        self._pending = ""
        self._is_blank = True
        self._has_calls = False

    def feed(self, text: str) -> list[Piece]:
        self._lexer.feed(text)
        pieces = self._in_text() if self._reader is None else []
        while self._reader is not None:
            pieces += self._in_calls(self._reader)
            if self._reader is not None:
                break
            pieces += self._in_text()
        return pieces

    def finish(self) -> list[Piece]:
        if self._reader is None:
            return self._say_last(self._lexer.take_all())
        return self._reader.finish() or self._say_last(self._reader.untold)

    def _in_text(self) -> list[Piece]:
        text, opening = self._lexer.take_until_any(self._opening)
        if opening:
            self._reader = self._new_reader(opening)
        return self._say(text)

    def _in_calls(self, reader: CallReader) -> list[Piece]:
        pieces = reader.feed(self._lexer.take_all())
        for piece in pieces:
            if isinstance(piece, CallStarted):
                self._has_calls = True
                self._pending = ""
            elif isinstance(piece, CallEnded):
                self._is_blank = True
        if reader.state is CallState.OPEN:
            return pieces
        self._reader = None
        self._lexer.feed(reader.rest)
        if reader.state is CallState.BROKEN:
            pieces += self._say(reader.untold)
        return pieces

    def _say(self, text: str) -> list[Piece]:
        text = self._pending + text
        if self._is_blank and (not text or text.isspace()):
            self._pending = text
            return []
        self._pending = ""
        self._is_blank = False
        return [Text(text)] if text else []

    def _say_last(self, text: str) -> list[Piece]:
        pieces = self._say(text)
        is_whole_answer = bool(self._pending) and not self._has_calls
        return [Text(self._pending)] if is_whole_answer else pieces
