"""Thoughts before the answer: `<think>` ... `</think>`, then whatever the family writes.

Many templates open the thought in the prompt, so that the output begins inside it. White
space around the thought belongs to the syntax. A thought that is never closed is all
reasoning. Later tags are text: an answer may speak about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.core.request import Tool, ToolChoice
from serving.output.formats.base import Format, Shape
from serving.output.lexer import Lexer, Tag
from serving.output.pieces import Parser, Piece, Reasoning

_OPEN = Tag("<think>")
_CLOSE = Tag("</think>")

# What models of this family write between a thought and the answer.
_GAP = "\n\n"


class ThinkParser:
    """Reads the thought, then gives everything to the answer's parser."""

    def __init__(self, answer: Parser, *, opens_reasoning: bool) -> None:
        self._answer = answer
        self._lexer = Lexer()
        self._space = ""
        self._has_thought = False
        self._read: Callable[[], list[Piece]] | None = self._before_thought
        self.is_reasoning = opens_reasoning

    def feed(self, text: str) -> list[Piece]:
        if self._read is None:
            return self._answer.feed(text)
        self._lexer.feed(text)
        return self._read_on()

    def finish(self) -> list[Piece]:
        rest = self._lexer.take_all()
        if self.is_reasoning:
            return self._think(rest)
        begun = self._answer.feed(rest) if self._read == self._before_thought else []
        return begun + self._answer.finish()

    def _read_on(self) -> list[Piece]:
        pieces: list[Piece] = []
        while (read := self._read) is not None:
            pieces += read()
            if self._read == read:
                return pieces
        return pieces + self._answer.feed(self._lexer.take_all())

    def _before_thought(self) -> list[Piece]:
        """A thought that the prompt has opened may be opened again: the tag is dropped."""
        is_opened = self._lexer.take_space_and(_OPEN)
        if is_opened is not None:
            self.is_reasoning = self.is_reasoning or is_opened
            self._read = self._in_thought if self.is_reasoning else None
        return []

    def _in_thought(self) -> list[Piece]:
        thought, is_closed = self._lexer.take_until(_CLOSE)
        if is_closed:
            self.is_reasoning = False
            self._read = self._after_thought
        return self._think(thought)

    def _after_thought(self) -> list[Piece]:
        if self._lexer.skip_space():
            self._read = None
        return []

    def _think(self, text: str) -> list[Piece]:
        """All but the white space at both ends; what is held may turn out to be inside."""
        text = self._space + text
        if not self._has_thought:
            text = text.lstrip()
        thought = text.rstrip()
        self._space = text[len(thought) :]
        self._has_thought = self._has_thought or bool(thought)
        return [Reasoning(thought)] if thought else []


@dataclass(frozen=True, slots=True)
class Think:
    """Any family, with thoughts before its answers."""

    answer: Format

    @property
    def name(self) -> str:
        return "think" if self.answer.name == "plain" else f"think+{self.answer.name}"

    @property
    def makes_calls(self) -> bool:
        return self.answer.makes_calls

    @property
    def special_texts(self) -> frozenset[str]:
        return self.answer.special_texts | {_OPEN.text, _CLOSE.text}

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        answer = self.answer.new_parser(tools, opens_reasoning=False)
        return ThinkParser(answer, opens_reasoning=opens_reasoning)

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        return self.answer.call_shape(tools, choice, parallel=parallel)

    def after_thought(self, shape: Shape, *, opens_reasoning: bool) -> Shape:
        if opens_reasoning:
            return _sequence(_thought(""), shape)
        return {"type": "or", "elements": [_sequence(_thought(_OPEN.text), shape), shape]}


def _thought(begin: str) -> Shape:
    return {"type": "tag", "begin": begin, "content": {"type": "any_text"}, "end": _CLOSE.text}


def _sequence(thought: Shape, shape: Shape) -> Shape:
    gap = {"type": "const_string", "value": _GAP}
    return {"type": "sequence", "elements": [thought, gap, shape]}
