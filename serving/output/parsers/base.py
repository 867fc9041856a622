"""What the parser of a model family is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from serving.core.request import Tool
from serving.output.call_reader import CallReader
from serving.output.calls import CallsParser
from serving.output.lexer import Tag
from serving.output.parse_events import Parser, Piece, Text


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

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        """Return a parser for one choice. Without tools it reads nothing as a tool call.

        `opens_reasoning`: the prompt ends inside reasoning.
        """


class PlainParser:
    """All text is answer."""

    is_reasoning = False

    def feed(self, text: str) -> list[Piece]:
        return [Text(text)] if text else []

    def finish(self) -> list[Piece]:
        return []


class Plain:
    """Models whose output is only text."""

    special_texts: frozenset[str] = frozenset()
    reasoning = None

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        return PlainParser()


@dataclass(frozen=True)
class CallsFamily:
    """Text in which an opening tag begins calls.

    `opening`: the tag, or what makes it of a request's tools. `new_reader` gets the spelling
    of the tag that was met, and the tools.
    """

    opening: Tag | Callable[[Sequence[Tool]], Tag]
    new_reader: Callable[[str, Sequence[Tool]], CallReader]
    special_texts: frozenset[str]
    reasoning: ReasoningTags | None = None

    def new_parser(self, tools: Sequence[Tool], *, opens_reasoning: bool) -> Parser:
        if not tools:
            return PlainParser()
        opening = self.opening if isinstance(self.opening, Tag) else self.opening(tools)
        return CallsParser(opening, lambda spelling: self.new_reader(spelling, tools))


PLAIN = Plain()
