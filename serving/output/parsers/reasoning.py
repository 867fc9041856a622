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
from serving.output.parser import EventSink, Parser
from serving.output.parsers.base import ParserFamily, ReasoningTags

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


class _Stage:
    """Reads text up to a point, then passes all text to another parser. `_read` is None then."""

    def __init__(self, then: Parser) -> None:
        self._then = then
        self._lexer = Lexer()
        self._space = ""  # held back: it is syntax at the end of a part
        self._read: Callable[[], None] | None

    def feed(self, text: str) -> None:
        if self._read is None:
            self._then.feed(text)
            return
        self._lexer.feed(text)
        while (read := self._read) is not None:
            read()
            if self._read == read:
                return
        self._then.feed(self._lexer.take_all())

    def _without_space_at_end(self, text: str) -> str:
        text = self._space + text
        bare = text.rstrip()
        self._space = text[len(bare) :]
        return bare


class ReasoningParser(_Stage):
    """Reads the reasoning, then passes all text to the answer's parser."""

    def __init__(
        self, sink: EventSink, tags: ReasoningTags, answer: Parser, *, opens_reasoning: bool
    ) -> None:
        super().__init__(answer)
        self._sink = sink
        self._tags = tags
        self._has_reasoning = False
        self._read = self._before_reasoning
        self.is_reasoning = opens_reasoning

    def finish(self) -> None:
        rest = self._lexer.take_all()
        if self.is_reasoning:
            self._reason(rest)
            return
        if self._read == self._before_reasoning:
            self._then.feed(rest)
        self._then.finish()

    def _before_reasoning(self) -> None:
        """Drop an opening tag, also after a prompt that has opened the reasoning already."""
        is_opened = self._lexer.take_space_and(self._tags.open)
        if is_opened is not None:
            self.is_reasoning = self.is_reasoning or is_opened
            self._read = self._in_reasoning if self.is_reasoning else None

    def _in_reasoning(self) -> None:
        text, is_closed = self._lexer.take_until(self._tags.close)
        if is_closed:
            self.is_reasoning = False
            self._read = self._after_reasoning
        self._reason(text)

    def _after_reasoning(self) -> None:
        if self._lexer.skip_space():
            self._read = None

    def _reason(self, text: str) -> None:
        """Pass on all but the white space at both ends of the reasoning."""
        text = self._without_space_at_end(text if self._has_reasoning else text.lstrip())
        self._has_reasoning = self._has_reasoning or bool(text)
        self._sink.reasoning(text)


class _TaggedAnswerParser(_Stage):
    """Takes one pair of tags off an answer: `<response>` ... `</response>`.

    An answer that does not begin with the first tag stays unchanged. White space at both ends
    between the tags is syntax. The last tag may be missing.
    """

    is_reasoning = False

    def __init__(self, answer: Parser, opening: Tag, closing: Tag) -> None:
        super().__init__(answer)
        self._opening = opening
        self._closing = closing
        self._read = self._at_start

    def finish(self) -> None:
        rest = self._lexer.take_all()
        is_syntax = self._read in (self._inside, self._after_answer) and not rest.strip()
        if rest and not is_syntax:
            self._then.feed(self._space + rest)
        self._then.finish()

    def _at_start(self) -> None:
        is_open = self._lexer.take_space_and(self._opening)
        if is_open is not None:
            self._read = self._at_first_word if is_open else None

    def _at_first_word(self) -> None:
        if self._lexer.skip_space():
            self._read = self._inside

    def _inside(self) -> None:
        text, is_closed = self._lexer.take_until(self._closing)
        text = self._without_space_at_end(text)
        if is_closed:
            self._space = ""
            self._read = self._after_answer
        if text:
            self._then.feed(text)

    def _after_answer(self) -> None:
        if self._lexer.text.strip():
            self._read = None


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

    def new_parser(
        self, sink: EventSink, tools: Sequence[Tool], *, opens_reasoning: bool
    ) -> Parser:
        answer = self.answer.new_parser(sink, tools, opens_reasoning=False)
        if self.tags.answer_tags is not None:
            answer = _TaggedAnswerParser(answer, *self.tags.answer_tags)
        is_open = opens_reasoning or self.tags.starts_open
        return ReasoningParser(sink, self.tags, answer, opens_reasoning=is_open)
