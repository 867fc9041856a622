"""What parsers of model families share: the family itself, and text with tool calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from serving.core.request import Tool
from serving.output.lexer import EndOfText, Lexer, Reading, Tag, UnexpectedText
from serving.output.parser import EventSink, Parser


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """How a family marks reasoning. The first spelling of a tag is the usual one."""

    open: Tag
    close: Tag
    # Syntax that always follows `close`, also where a budget ends the reasoning.
    after_close: str = ""
    # White space that models of this family write between reasoning and answer.
    gap: str = ""
    # The output begins with reasoning, even where the prompt does not open it.
    starts_open: bool = False
    # The tags around an answer that follows reasoning.
    answer_tags: tuple[Tag, Tag] | None = None

    @property
    def closing(self) -> str:
        """What ends reasoning."""
        return self.close.text + self.after_close


# Reads all text. Without tools it reads nothing as a tool call, and without reasoning it is all
# text.
Read = Callable[[Lexer, EventSink, Sequence[Tool]], Reading[None]]


@dataclass(frozen=True, slots=True)
class ParserFamily:
    """Reads the output of one family of models.

    `special_texts`: tokens that are syntax to this family. The decoder passes them on even where
    the tokenizer calls them special. `reasoning` None: the family writes no reasoning.
    """

    read: Read
    special_texts: frozenset[str] = frozenset()
    reasoning: ReasoningTags | None = None

    def new_parser(
        self, sink: EventSink, tools: Sequence[Tool], *, opens_reasoning: bool
    ) -> Parser:
        """Return a parser for one choice. `opens_reasoning`: the prompt ends inside reasoning."""
        if self.reasoning is None and not tools:
            return PlainParser(sink)
        is_reasoning = opens_reasoning and self.reasoning is not None
        return Parser(lambda lexer: self.read(lexer, sink, tools), is_reasoning=is_reasoning)


class PlainParser(Parser):
    """All text is answer. It runs no generator, because most answers are plain."""

    def __init__(self, sink: EventSink) -> None:
        super().__init__(lambda lexer: _read_text(lexer, sink, ()))
        self._sink = sink

    def feed(self, text: str) -> None:
        self._sink.text(text)


def _read_text(lexer: Lexer, sink: EventSink, _: Sequence[Tool]) -> Reading[None]:
    while True:
        sink.text(lexer.take_all())
        yield


# Models whose output is only text.
PLAIN = ParserFamily(_read_text)

# Reads one call, or all calls of one opening tag, from after the spelling of the tag that was
# met. A call starts in the sink only when it is sure to be one; the lexer's mark is None then.
# Raises `UnexpectedText` before: the text from the mark on is no call.
ReadCalls = Callable[[Lexer, EventSink, str, Sequence[Tool]], Reading[None]]


def calls_family(
    opening: Tag | Callable[[Sequence[Tool]], Tag],
    read_calls: ReadCalls,
    special_texts: Iterable[str],
) -> ParserFamily:
    """Return a family that writes text in which an opening tag begins calls.

    `opening`: the tag, or a function that returns the tag for a request's tools.
    """

    def read(lexer: Lexer, sink: EventSink, tools: Sequence[Tool]) -> Reading[None]:
        if not tools:
            return _read_text(lexer, sink, tools)
        tag = opening if isinstance(opening, Tag) else opening(tools)
        return read_with_calls(lexer, sink, tools, tag, read_calls)

    return ParserFamily(read, frozenset(special_texts))


def read_with_calls(
    lexer: Lexer, sink: EventSink, tools: Sequence[Tool], opening: Tag, read_calls: ReadCalls
) -> Reading[None]:
    """Read an answer in which text and tool calls come in any order.

    What begins like a call but is none is given back as text.
    """
    answer = _AnswerText(sink)
    is_text = True
    try:
        while True:
            spelling = yield from lexer.take_until(opening, answer.write)
            lexer.mark = lexer.at - len(spelling)
            is_text = False
            try:
                yield from read_calls(lexer, sink, spelling, tools)
            except UnexpectedText:
                answer.write(lexer.text[lexer.mark : lexer.at])
            lexer.mark = None
            is_text = True
    except EndOfText:
        start = lexer.at if is_text else lexer.mark
        if start is not None:
            answer.write(lexer.text[start:])
        answer.finish()


class _AnswerText:
    """The text of an answer with calls. White space alone between calls is syntax; beside other
    text it is part of the answer."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._num_calls_before = self._num_calls = sink.num_calls
        self._space = ""  # syntax, unless text follows
        self._is_blank = True  # no text since the last call

    def write(self, text: str) -> None:
        if self._sink.num_calls > self._num_calls:
            self._num_calls = self._sink.num_calls
            self._is_blank = True
            self._space = ""
        if self._is_blank:
            text = self._space + text
            if not text or text.isspace():
                self._space = text
                return
            self._is_blank = False
        self._sink.text(text)

    def finish(self) -> None:
        if self._is_blank and self._sink.num_calls == self._num_calls_before:
            self._sink.text(self._space)  # the whole answer is white space
