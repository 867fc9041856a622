"""Thoughts before the answer: `<think>` ... `</think>`, then whatever the family writes.

Families mark their thoughts differently, but all think first and answer then: the marks are
a `ThoughtForm`, and any form goes with any family of answers.

Many templates open the thought in the prompt, so that the output begins inside it. White
space around the thought belongs to the syntax. A thought that is never closed is all
reasoning. Later tags are text: an answer may speak about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.core.request import Tool, ToolChoice
from serving.output.formats.base import Format, Shape, ThoughtMarks
from serving.output.formats.plain import Plain
from serving.output.lexer import Lexer, Tag
from serving.output.parse_events import Parser, Piece, Reasoning
from serving.output.unwrap import UnwrappingParser


@dataclass(frozen=True, slots=True)
class ThoughtForm:
    """How thoughts are marked. Of several spellings of a tag the first is the usual one."""

    name: str
    open: Tag
    close: Tag
    # What models of this family write between a thought and the answer.
    gap: str = "\n\n"
    # The output begins inside a thought, even where the prompt does not open one.
    starts_open: bool = False
    # What stands around the answer when there was a thought.
    answer_marks: tuple[Tag, Tag] | None = None


# Qwen3, Phi-4-reasoning and many others.
THINK = ThoughtForm("think", Tag("<think>"), Tag("</think>"))
# R1's first templates do not open the thought, and nor does the model.
DEEPSEEK_R1 = ThoughtForm("deepseek_r1", THINK.open, THINK.close, starts_open=True)
MISTRAL_THINK = ThoughtForm("mistral_think", Tag("[THINK]"), Tag("[/THINK]"), gap="")
# Granite 3.2 says it in words, Granite 3.3 marks the answer as well.
GRANITE_THINK = ThoughtForm(
    "granite_think",
    Tag("Here is my thought process:", "Here's my thought process:", THINK.open.text),
    Tag("Here is my response:", "Here's my response:", THINK.close.text),
    gap="\n",
    answer_marks=(Tag("<response>"), Tag("</response>")),
)


class ThinkParser:
    """Reads the thought, then gives everything to the answer's parser."""

    def __init__(self, form: ThoughtForm, answer: Parser, *, opens_reasoning: bool) -> None:
        self._form = form
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
        is_opened = self._lexer.take_space_and(self._form.open)
        if is_opened is not None:
            self.is_reasoning = self.is_reasoning or is_opened
            self._read = self._in_thought if self.is_reasoning else None
        return []

    def _in_thought(self) -> list[Piece]:
        thought, is_closed = self._lexer.take_until(self._form.close)
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


@dataclass(frozen=True)
class Think(Format):
    """Any family, with thoughts before its answers."""

    answer: Format
    form: ThoughtForm = THINK

    @property
    def name(self) -> str:
        is_plain = isinstance(self.answer, Plain)
        return self.form.name if is_plain else f"{self.form.name}+{self.answer.name}"

    @property
    def makes_calls(self) -> bool:
        return self.answer.makes_calls

    @property
    def special_texts(self) -> frozenset[str]:
        return self.answer.special_texts.union(self.form.open.texts, self.form.close.texts)

    @property
    def starts_in_thought(self) -> bool:
        return self.form.starts_open

    @property
    def thought_marks(self) -> ThoughtMarks:
        close = self.form.close.text
        return ThoughtMarks(self.form.open.text, close, close, starts_open=self.form.starts_open)

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        answer = self.answer.new_parser(tools, opens_reasoning=False)
        if self.form.answer_marks is not None:
            answer = UnwrappingParser(answer, *self.form.answer_marks)
        is_open = opens_reasoning or self.form.starts_open
        return ThinkParser(self.form, answer, opens_reasoning=is_open)

    def call_shape(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> Shape:
        return self.answer.call_shape(tools, choice, parallel=parallel)

    def answer_shape(self, shape: Shape) -> Shape:
        return self.answer.answer_shape(shape)

    def after_thought(self, shape: Shape) -> Shape:
        end = self.form.close.text
        thought = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": end}
        # The engine takes no empty string.
        gap = [{"type": "const_string", "value": self.form.gap}] if self.form.gap else []
        return {"type": "sequence", "elements": [thought, *gap, shape]}
