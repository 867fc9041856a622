"""Runs the parsers of model output.

A parser is fed text as the model generates it, and writes what it finds to an `EventWriter`. Text
that may be syntax is held back. Text that is fed at once gives the same answer as its parts do,
with fewer calls of the writer. So streamed and unary answers cannot differ.
"""

from collections.abc import Callable
from contextlib import suppress

from vinery_serving.output.lexer import EndOfText, Lexer, Reading


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
        if self.write_rest is not None:
            self.write_rest(text)
            return
        # What has been read and is not marked is dropped.
        if self.mark is None:
            rest = self.text[self.at :]
            self.text = rest + text if rest else text
            self.at = 0
        else:
            self.text = self.text[self.mark :] + text
            self.at -= self.mark
            self.mark = 0
        next(self._reading, None)

    def close(self) -> None:
        """A closing tag ends what is read, and more text follows it."""
        self.finish(is_closed=True)

    def finish(self, *, is_closed: bool = False) -> None:
        """Release what was held back. A call that is cut in its arguments stays open."""
        with suppress(EndOfText, StopIteration):
            while True:
                self._reading.throw(EndOfText(is_closed=is_closed))
