"""What parsers of model families share: the contract, plain text, and text with tool calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from serving.core.request import Tool
from serving.output.lexer import Lexer, Tag
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


class ParserFamily(Protocol):
    """Reads the output of one family of models. Stateless: every choice gets its own parser."""

    @property
    def special_texts(self) -> frozenset[str]:
        """Tokens that are syntax to this family. The decoder passes them on even where the
        tokenizer calls them special."""

    @property
    def reasoning(self) -> ReasoningTags | None:
        """None: the family writes no reasoning, or `WithReasoning` reads it."""

    def new_parser(
        self, sink: EventSink, tools: Sequence[Tool], *, opens_reasoning: bool
    ) -> Parser:
        """Return a parser for one choice. Without tools it reads nothing as a tool call.

        `opens_reasoning`: the prompt ends inside reasoning.
        """


class PlainParser:
    """All text is answer."""

    is_reasoning = False

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink

    def feed(self, text: str) -> None:
        self._sink.text(text)

    def finish(self) -> None:
        pass


class Plain:
    """Models whose output is only text."""

    special_texts: frozenset[str] = frozenset()
    reasoning = None

    def new_parser(
        self, sink: EventSink, tools: Sequence[Tool], *, opens_reasoning: bool
    ) -> Parser:
        return PlainParser(sink)


PLAIN = Plain()


class CallState(Enum):
    """The progress of a call reader."""

    OPEN = "open"
    ENDED = "ended"
    BROKEN = "broken"  # what was read last is no call


class CallReader:
    """Reads one call, or all calls of one opening tag.

    A call starts in the sink only when it is sure to be one. Until then its text is `pending`,
    and is given back as text if the state becomes BROKEN or the text ends.
    """

    def __init__(self, sink: EventSink, opening: str) -> None:
        self.state = CallState.OPEN  # feed only while it is OPEN
        self.rest = ""  # the text after the calls, once the state is not OPEN
        self.pending = opening  # since the last call
        self._sink = sink
        self._lexer = Lexer()
        self._step: Callable[[], None]

    def feed(self, text: str) -> None:
        """Read more text."""
        raise NotImplementedError

    def finish(self) -> None:
        """Read the end of the text. A call that is cut in its arguments stays open."""

    def _run(self) -> None:
        """Take steps until one needs more text."""
        while self.state is CallState.OPEN:
            step = self._step
            step()
            if self._step == step:
                break

    def _end(self, state: CallState = CallState.ENDED) -> None:
        self.state = state
        self.rest = self._lexer.take_all()


class CallsParser:
    """An answer in which text and tool calls come in any order.

    `opening` begins calls; `new_reader` gets the spelling that was met, and reads on from there.
    White space alone between calls is syntax; beside other text it is part of the answer. What
    begins like a call but is none is given back as text.
    """

    is_reasoning = False

    def __init__(
        self, sink: EventSink, opening: Tag, new_reader: Callable[[str], CallReader]
    ) -> None:
        self._sink = sink
        self._opening = opening
        self._new_reader = new_reader
        self._lexer = Lexer()
        self._reader: CallReader | None = None
        # White space that is syntax, unless text follows.
        self._space = ""
        self._is_blank = True  # no text since the last call
        self._has_calls = False

    def feed(self, text: str) -> None:
        self._lexer.feed(text)
        if self._reader is None:
            self._in_text()
        while self._reader is not None:
            self._in_calls(self._reader)
            if self._reader is not None:
                break
            self._in_text()

    def finish(self) -> None:
        if self._reader is None:
            self._text(self._lexer.take_all())
        else:
            self._reader.finish()
            self._text(self._reader.pending)
        if not self._has_calls:
            self._sink.text(self._space)  # the whole answer is white space

    def _in_text(self) -> None:
        text, opening = self._lexer.take_until_any(self._opening)
        if opening:
            self._reader = self._new_reader(opening)
        self._text(text)

    def _in_calls(self, reader: CallReader) -> None:
        num_calls = self._sink.num_calls
        reader.feed(self._lexer.take_all())
        if self._sink.num_calls > num_calls:
            self._has_calls = self._is_blank = True
            self._space = ""
        if reader.state is CallState.OPEN:
            return
        self._reader = None
        self._lexer.feed(reader.rest)
        if reader.state is CallState.BROKEN:
            self._text(reader.pending)

    def _text(self, text: str) -> None:
        text = self._space + text
        if self._is_blank and (not text or text.isspace()):
            self._space = text
            return
        self._space = ""
        self._is_blank = False
        self._sink.text(text)


@dataclass(frozen=True)
class CallsFamily:
    """Text in which an opening tag begins calls.

    `opening`: the tag, or a function that returns the tag for a request's tools. `new_reader`
    gets the sink, the spelling of the tag that was met, and the tools.
    """

    opening: Tag | Callable[[Sequence[Tool]], Tag]
    new_reader: Callable[[EventSink, str, Sequence[Tool]], CallReader]
    special_texts: frozenset[str]
    reasoning: ReasoningTags | None = None

    def new_parser(
        self, sink: EventSink, tools: Sequence[Tool], *, opens_reasoning: bool
    ) -> Parser:
        if not tools:
            return PlainParser(sink)
        opening = self.opening if isinstance(self.opening, Tag) else self.opening(tools)
        return CallsParser(sink, opening, lambda spelling: self.new_reader(sink, spelling, tools))
