"""Tool calls that a model writes as Python:

    [get_weather(city="Paris", days=3), get_time()]

Arguments have names, or stand in a dictionary after two stars. They become JSON text while
they grow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from serving.output.call_reader import CallState
from serving.output.lexer import Tag
from serving.output.literal_text import PYTHON, LiteralValue
from serving.output.parse_events import CallArgs, CallEnded, CallStarted, Piece
from serving.output.typed import quoted

_SPACE: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"[\w.\-]*")
_KEY: Final = re.compile(r"[^\s=,()\[\]{}\"']*")
_STARS: Final = "**"


class PythonicCalls:
    """Reads the calls after `opening`, up to and with `close`.

    `opening` is a tag, or the bracket and name of the first call with its parenthesis: for
    families that announce calls by no tag. A single call may do without the brackets.
    """

    def __init__(self, opening: str, *, close: Tag | None = None) -> None:
        self.state = CallState.OPEN
        self.rest = ""
        self.untold = opening
        self._close = close
        self._text = ""
        # Where in the text begins what is not told; None inside a call that is told of.
        self._untold_from: int | None = 0
        self._pieces: list[Piece] = []
        self._is_list = opening.endswith("(")
        self._step: Callable[[int], int] = self._at_key if self._is_list else self._at_list
        self._name = opening[1:-1] if self._is_list else ""
        self._has_calls = False
        self._has_arguments = False
        self._is_whole = False  # the arguments came as one dictionary
        self._before = ""  # the JSON text that comes before the next value
        self._value = LiteralValue(PYTHON)

    def feed(self, text: str) -> list[Piece]:
        self._text += text
        at = 0
        while self.state is CallState.OPEN:
            step, start = self._step, at
            at = step(at)
            if self._step == step and at == start:
                break
        if self._untold_from is not None:
            self.untold += self._text[self._untold_from : at]
            self._untold_from = 0
        self._text = self._text[at:]
        if self.state is not CallState.OPEN:
            self.rest = self._text
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> list[Piece]:
        """The text is over. What only leads to another call is nobody's text."""
        if self._untold_from is not None:
            self.untold += self._text
        if self._step in (self._after_call, self._at_close) or self.untold.strip() == ",":
            self.untold = ""
        return []

    # Each step takes some of the text from `at` on, and returns where it stopped. One that
    # stops where it began waits for more.

    def _at_list(self, at: int) -> int:
        at = self._after_space(at)
        if at == len(self._text):
            return at
        self._is_list = self._text[at] == "["
        self._step = self._at_name
        return at + self._is_list

    def _at_name(self, at: int) -> int:
        at = self._after_space(at)
        end = _end(_NAME, self._text, at)
        if end == len(self._text):
            return at
        if self._text[at] == "]" and self._has_calls:
            self._step = self._at_close
            return at + 1
        if end == at:
            return self._break(at)
        self._name = self._text[at:end]
        self._step = self._at_parenthesis
        return end

    def _at_parenthesis(self, at: int) -> int:
        at = self._after_space(at)
        if at == len(self._text):
            return at
        if self._text[at] != "(":
            return self._break(at)
        self._has_arguments = self._is_whole = False
        self._step = self._at_key
        return at + 1

    def _at_key(self, at: int) -> int:
        at = self._after_space(at)
        if _STARS.startswith(self._text[at:]):
            return at
        if self._text[at] == ")":
            self._tell_name()
            return self._end_call(at)
        if self._text.startswith(_STARS, at):
            self._step = self._at_dictionary
            return at + len(_STARS)
        end = _end(_KEY, self._text, at)
        after = self._after_space(end)
        if after == len(self._text):
            return at
        if end == at or self._text[after] != "=" or self._is_whole:
            return self._break(at)
        comma = ", " if self._has_arguments else "{"
        self._begin_value(f"{comma}{quoted(self._text[at:end])}: ")
        return after + 1

    def _at_dictionary(self, at: int) -> int:
        at = self._after_space(at)
        if at == len(self._text):
            return at
        if self._text[at] != "{" or self._has_arguments:
            return self._break(at)
        self._is_whole = True
        self._begin_value("")
        return at

    def _in_value(self, at: int) -> int:
        """With its first value it is sure to be a call; names alone may stand in any text."""
        at, told = self._value.take(self._text, at)
        if told:
            self._tell_name()
            self._pieces.append(CallArgs(self._before + told))
            self._before = ""
        if self._value.is_broken:
            return self._break(at)
        if self._value.is_complete:
            self._step = self._after_argument
        return at

    def _after_argument(self, at: int) -> int:
        at = self._after_space(at)
        if at == len(self._text):
            return at
        if self._text[at] == ")":
            return self._end_call(at)
        if self._text[at] != ",":
            return self._break(at)
        self._step = self._at_key
        return at + 1

    def _after_call(self, at: int) -> int:
        after = self._after_space(at)
        if after == len(self._text):
            return at
        self._step = self._at_close
        if self._text[after] == "]":
            return after + 1
        if self._text[after] == ",":
            self._step = self._at_name
            return after + 1
        return at  # the bracket is missing

    def _at_close(self, at: int) -> int:
        if self._close is not None:
            after = self._after_space(at)
            if self._text.startswith(self._close.text, after):
                at = after + len(self._close.text)
            elif self._close.text.startswith(self._text[after:]):
                return at
        self.state = CallState.ENDED
        return at

    def _begin_value(self, before: str) -> None:
        self._before = before
        self._has_arguments = True
        self._value = LiteralValue(PYTHON)
        self._step = self._in_value

    def _tell_name(self) -> None:
        if self._untold_from is not None:
            self._untold_from = None
            self.untold = ""
            self._has_calls = True
            self._pieces.append(CallStarted(self._name))

    def _end_call(self, at: int) -> int:
        """At the parenthesis that ends a call."""
        if not self._is_whole:
            self._pieces.append(CallArgs("}" if self._has_arguments else "{}"))
        self._pieces.append(CallEnded())
        self._untold_from = at + 1
        self._step = self._after_call if self._is_list else self._at_close
        return at + 1

    def _break(self, at: int) -> int:
        """No call. One that was told already can only end here."""
        if self._untold_from is None:
            self._pieces.append(CallEnded())
            self.state = CallState.ENDED
        else:
            self.state = CallState.BROKEN
        return at

    def _after_space(self, at: int) -> int:
        return _end(_SPACE, self._text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
