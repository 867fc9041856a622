"""Reasoning before the answer: `<think>` ... `</think>`, then whatever the family writes.

Families mark their reasoning differently, but all reason first and answer then. The marks are
`ReasoningTags`, and any tags go with any family of answers.

Many templates open the reasoning in the prompt, so that the output begins inside it. White
space around reasoning belongs to the syntax. Without a closing tag all text is reasoning.
Tags after the first pair are text: an answer may mention them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serving.core.request import Tool
from serving.output.lexer import EndOfText, Lexer, Reading, Tag
from serving.output.parser import EventSink, Parser
from serving.output.parsers.base import ParserFamily, Read, ReasoningTags

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


def with_reasoning(family: ParserFamily, tags: ReasoningTags) -> ParserFamily:
    """Return the same family with reasoning before its answers."""
    read_answer = family.read
    if tags.answer_tags is not None:
        read_answer = _without_tags(read_answer, *tags.answer_tags)

    def read(lexer: Lexer, sink: EventSink, tools: Sequence[Tool]) -> Reading[None]:
        yield from _read_reasoning(lexer, sink, tags)
        yield from read_answer(lexer, sink, tools)

    special_texts = family.special_texts.union(tags.open.strings, tags.close.strings)
    return ParserFamily(read, special_texts, tags)


def _read_reasoning(lexer: Lexer, sink: EventSink, tags: ReasoningTags) -> Reading[None]:
    """Read the reasoning and the white space after it. An opening tag is dropped, also after a
    prompt that has opened the reasoning already."""
    reasoning = _TrimmedText(sink.reasoning)
    lexer.is_reasoning = lexer.is_reasoning or tags.starts_open
    try:
        is_opened = bool((yield from lexer.take(*tags.open.strings)))
        lexer.is_reasoning = lexer.is_reasoning or is_opened
        if lexer.is_reasoning:
            yield from lexer.take_until(tags.close, reasoning.write)
            lexer.is_reasoning = False
            yield from lexer.peek()
    except EndOfText:
        if lexer.is_reasoning:
            reasoning.write(lexer.take_all())
            raise


def _without_tags(read_answer: Read, opening: Tag, closing: Tag) -> Read:
    """Take one pair of tags off an answer: `<response>` ... `</response>`.

    An answer that does not begin with the first tag stays unchanged. White space at both ends
    between the tags is syntax. The last tag may be missing.
    """

    def read(lexer: Lexer, sink: EventSink, tools: Sequence[Tool]) -> Reading[None]:
        answer = Parser(lambda inner: read_answer(inner, sink, tools))
        trimmed = _TrimmedText(answer.feed)
        is_tagged = False
        try:
            is_tagged = bool((yield from lexer.take(*opening.strings)))
            if is_tagged:
                yield from lexer.take_until(closing, trimmed.write)
                trimmed.space = ""
                while not lexer.text[lexer.at :].strip():
                    yield
            while True:
                answer.feed(lexer.take_all())
                yield
        except EndOfText:
            rest = lexer.take_all()
            if rest.strip() or not is_tagged:
                answer.feed(trimmed.space + rest)
            answer.finish()

    return read


class _TrimmedText:
    """Passes on text without the white space at both ends."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.space = ""  # held back: it may be at the end
        self._write = write
        self._has_begun = False

    def write(self, text: str) -> None:
        text = self.space + (text if self._has_begun else text.lstrip())
        bare = text.rstrip()
        self.space = text[len(bare) :]
        self._has_begun = self._has_begun or bool(bare)
        self._write(bare)
