"""Takes one pair of tags off an answer: `<response>` ... `</response>`.

An answer that does not begin with the first tag stays as it is. White space at both ends of
what is inside belongs to the tags; the last tag may be missing.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.output.lexer import Lexer, Tag
from serving.output.parse_events import Parser, Piece


class UnwrappingParser:
    """Gives what is inside the tags to the answer's parser."""

    is_reasoning = False

    def __init__(self, answer: Parser, opening: Tag, closing: Tag) -> None:
        self._answer = answer
        self._opening = opening
        self._closing = closing
        self._lexer = Lexer()
        self._space = ""
        self._read: Callable[[], list[Piece]] | None = self._at_start

    def feed(self, text: str) -> list[Piece]:
        if self._read is None:
            return self._answer.feed(text)
        self._lexer.feed(text)
        pieces: list[Piece] = []
        while (read := self._read) is not None:
            pieces += read()
            if self._read == read:
                return pieces
        return pieces + self._answer.feed(self._lexer.take_all())

    def finish(self) -> list[Piece]:
        rest = self._lexer.take_all()
        is_syntax = self._read in (self._inside, self._behind) and not rest.strip()
        is_kept = bool(rest) and not is_syntax
        pieces = self._answer.feed(self._space + rest) if is_kept else []
        return pieces + self._answer.finish()

    def _at_start(self) -> list[Piece]:
        is_open = self._lexer.take_space_and(self._opening)
        if is_open is not None:
            self._read = self._at_first_word if is_open else None
        return []

    def _at_first_word(self) -> list[Piece]:
        if self._lexer.skip_space():
            self._read = self._inside
        return []

    def _inside(self) -> list[Piece]:
        text, is_closed = self._lexer.take_until(self._closing)
        text = self._space + text
        said = text.rstrip()
        self._space = text[len(said) :]
        if is_closed:
            self._space = ""
            self._read = self._behind
        return self._answer.feed(said) if said else []

    def _behind(self) -> list[Piece]:
        if self._lexer.text.strip():
            self._read = None
        return []
