"""The contract between the parsers of model output and the events of a choice.

A parser is fed text as the model generates it, and calls a sink with what it finds. Text that
may be syntax is held back. Text that is fed at once gives the same answer as its parts do, with
fewer calls of the sink. So streamed and unary answers cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from serving.output.lexer import EndOfText, Lexer, Reading


class EventSink(Protocol):
    """Turns what a parser finds into events. Empty text adds nothing."""

    @property
    def num_calls(self) -> int:
        """The number of tool calls that have started."""

    def text(self, text: str) -> None:
        """Add text to the answer."""

    def reasoning(self, text: str) -> None:
        """Add text to the reasoning."""

    def start_call(self, name: str) -> None:
        """Start a tool call. `arguments` and then `end_call` follow, unless the text is cut."""

    def arguments(self, text: str) -> None:
        """Add JSON text to the arguments of the open call."""

    def end_call(self) -> None:
        """Mark the open call as complete."""

    def end_message(self) -> None:
        """Separate text and reasoning that follow from those before by a line break."""


class Parser(Lexer):
    """Runs the generator that `read` returns over text while it arrives."""

    def __init__(
        self, read: Callable[[Lexer], Reading[None]], *, is_reasoning: bool = False
    ) -> None:
        super().__init__()
        self.is_reasoning = is_reasoning
        self._reading = read(self)
        next(self._reading)

    def feed(self, text: str) -> None:
        """Read more text."""
        self.add(text)
        next(self._reading, None)

    def finish(self) -> None:
        """Release what was held back. A call that is cut in its arguments stays open."""
        with suppress(EndOfText, StopIteration):
            while True:
                self._reading.throw(EndOfText)
