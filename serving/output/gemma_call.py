"""A tool call in Gemma's own notation: a name, and arguments without quotes around keys.

call:get_weather{city:<|"|>Paris<|"|>,days:3}
"""

from __future__ import annotations

import re
from typing import Final

from serving.output.call_reader import CallState
from serving.output.lexer import Lexer, Tag
from serving.output.literal_text import GEMMA, LiteralValue
from serving.output.parse_events import CallArgs, CallEnded, CallStarted, Piece

_CALL: Final = "call:"
_NAME: Final = re.compile(r"[\w.\-]+")


class GemmaCall:
    """Reads one call after `opening`, up to and with `close`."""

    def __init__(self, opening: str, close: Tag) -> None:
        self.state = CallState.OPEN
        self.rest = ""
        self.untold = opening
        self._close = close
        self._lexer = Lexer()
        self._is_told = False
        self._value = LiteralValue(GEMMA)

    def feed(self, text: str) -> list[Piece]:
        self._lexer.feed(text)
        self.untold += text
        pieces = [] if self._is_told else self._read_name()
        if self._is_told:
            self.untold = ""
            pieces += self._read_arguments()
        if self._value.is_complete and self._lexer.take_space_and(self._close) is not None:
            self.state = CallState.ENDED
        if self.state is not CallState.OPEN:
            self.rest = self._lexer.take_all()
            self.untold = self.untold.removesuffix(self.rest)
        return pieces

    def finish(self) -> list[Piece]:
        return []

    def _read_name(self) -> list[Piece]:
        text = self._lexer.text.lstrip()
        name = _NAME.match(text, len(_CALL)) if text.startswith(_CALL) else None
        after = text[name.end() :].lstrip() if name else ""
        if name and after.startswith("{"):
            self._is_told = True
            self._lexer.text = after
            return [CallStarted(name[0])]
        may_become_one = text.startswith(_CALL) and len(text) == len(_CALL)
        if after or not (name or may_become_one or _CALL.startswith(text)):
            self.state = CallState.BROKEN
        return []

    def _read_arguments(self) -> list[Piece]:
        if self._value.is_complete:
            return []
        at, told = self._value.take(self._lexer.text, 0)
        self._lexer.text = self._lexer.text[at:]
        pieces: list[Piece] = [CallArgs(told)] if told else []
        if self._value.is_broken:
            self.state = CallState.ENDED
        is_over = self._value.is_broken or self._value.is_complete
        return [*pieces, CallEnded()] if is_over else pieces
