"""Reasoning before the answer: `<think>` ... `</think>`, then whatever the family writes.

Families mark their reasoning differently, but all reason first and answer then. The marks are
`ReasoningTags`, and any tags go with any family of answers.

Many templates open the reasoning in the prompt, so that the output begins inside it. White
space around reasoning belongs to the syntax. Without a closing tag all text is reasoning.
Tags after the first pair are text: an answer may mention them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.core.request import Tool
from serving.output.lexer import Lexer, Tag
from serving.output.parse_events import Parser, Piece, Reasoning
from serving.output.parsers.base import ParserFamily, ReasoningTags
from serving.output.unwrap import UnwrappingParser

# Qwen3, Phi-4-reasoning and many others.
THINK = ReasoningTags(Tag("<think>"), Tag("</think>"), gap="\n\n")
# The first templates of R1 do not open the reasoning, and nor does the model.
DEEPSEEK_R1 = ReasoningTags(THINK.open, THINK.close, gap="\n\n", starts_open=True)
MISTRAL_THINK = ReasoningTags(Tag("[THINK]"), Tag("[/THINK]"))
# Granite 3.2 writes sentences, Granite 3.3 tags, also around the answer.
GRANITE_THINK = ReasoningTags(
    Tag("Here is my thought process:", "Here's my thought process:", THINK.open.text),
    Tag("Here is my response:", "Here's my response:", THINK.close.text),
    gap="\n",
    answer_tags=(Tag("<response>"), Tag("</response>")),
)


class ReasoningParser:
    """Reads the reasoning, then passes all text to the answer's parser."""

    def __init__(self, tags: ReasoningTags, answer: Parser, *, opens_reasoning: bool) -> None:
        self._tags = tags
        self._answer = answer
        self._lexer = Lexer()
        self._space = ""
        self._has_reasoning = False
        self._read: Callable[[], list[Piece]] | None = self._before_reasoning
        self.is_reasoning = opens_reasoning

    def feed(self, text: str) -> list[Piece]:
        if self._read is None:
            return self._answer.feed(text)
        self._lexer.feed(text)
        return self._read_on()

    def finish(self) -> list[Piece]:
        rest = self._lexer.take_all()
        if self.is_reasoning:
            return self._reason(rest)
        begun = self._answer.feed(rest) if self._read == self._before_reasoning else []
        return begun + self._answer.finish()

    def _read_on(self) -> list[Piece]:
        pieces: list[Piece] = []
        while (read := self._read) is not None:
            pieces += read()
            if self._read == read:
                return pieces
        return pieces + self._answer.feed(self._lexer.take_all())

    def _before_reasoning(self) -> list[Piece]:
        """Drop an opening tag after a prompt that has opened the reasoning already."""
        is_opened = self._lexer.take_space_and(self._tags.open)
        if is_opened is not None:
            self.is_reasoning = self.is_reasoning or is_opened
            self._read = self._in_reasoning if self.is_reasoning else None
        return []

    def _in_reasoning(self) -> list[Piece]:
        text, is_closed = self._lexer.take_until(self._tags.close)
        if is_closed:
            self.is_reasoning = False
            self._read = self._after_reasoning
        return self._reason(text)

    def _after_reasoning(self) -> list[Piece]:
        if self._lexer.skip_space():
            self._read = None
        return []

    def _reason(self, text: str) -> list[Piece]:
        """Drop the white space at both ends; hold it back while it may be inside."""
        text = self._space + text
        if not self._has_reasoning:
            text = text.lstrip()
        reasoning = text.rstrip()
        self._space = text[len(reasoning) :]
        self._has_reasoning = self._has_reasoning or bool(reasoning)
        return [Reasoning(reasoning)] if reasoning else []


@dataclass(frozen=True)
class WithReasoning:
    """Any family, with reasoning before its answers."""

    answer: ParserFamily
    tags: ReasoningTags

    @property
    def special_texts(self) -> frozenset[str]:
        return self.answer.special_texts.union(self.tags.open.texts, self.tags.close.texts)

    @property
    def reasoning(self) -> ReasoningTags:
        return self.tags

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        answer = self.answer.new_parser(tools, opens_reasoning=False)
        if self.tags.answer_tags is not None:
            answer = UnwrappingParser(answer, *self.tags.answer_tags)
        is_open = opens_reasoning or self.tags.starts_open
        return ReasoningParser(self.tags, answer, opens_reasoning=is_open)
