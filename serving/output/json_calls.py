"""Tool calls that a model writes as JSON objects, after one opening tag or none:

    <tool_call>{"name": ..., "arguments": ...}</tool_call>
    functools[{"name": ..., "arguments": ...}, {"name": ..., "arguments": ...}]
    {"name": ..., "parameters": ...}; {"name": ..., "parameters": ...}

One object or several with commas, semicolons or white space between them, as they are or
in an array. The closing bracket and the closing tag may be missing: models forget them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Self

from serving.output.call_reader import CallState
from serving.output.json_call import JsonCall
from serving.output.lexer import Lexer, Tag
from serving.output.parse_events import Piece

_SEPARATORS = " \t\r\n,;"


class JsonCalls:
    """Reads the calls after `opening`, up to and with `close`.

    `is_array`: the opening has begun the array. `only`: see `JsonCall`.
    """

    def __init__(
        self,
        opening: str = "",
        *,
        is_array: bool = False,
        close: Tag | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        self.state = CallState.OPEN
        self.rest = ""
        self._close = close
        self._only = only
        self._lexer = Lexer()
        self._step: Callable[[], list[Piece]] = self._before_object if is_array else self._at_start
        # The syntax since the last call that was told.
        self._syntax = opening
        self._is_array = is_array
        self._call = JsonCall()

    @classmethod
    def untagged(cls, begun: str, names: Collection[str]) -> Self:
        """Reads calls that no tag announces, and that have begun with this text already.
        Only calls of these names are calls."""
        calls = cls(only=names)
        calls.feed(begun)
        return calls

    @property
    def untold(self) -> str:
        """All that was read since the last call: it may be none."""
        return self._syntax + self._call.untold

    def feed(self, text: str) -> list[Piece]:
        """The pieces that more text makes. Not to be called once the state is not OPEN."""
        self._lexer.feed(text)
        pieces: list[Piece] = []
        while True:
            step = self._step
            pieces += step()
            if self._step == step or self.state is not CallState.OPEN:
                return pieces

    def finish(self) -> list[Piece]:
        """The text is over. A call that is cut inside its arguments stays open."""
        if self._step in (self._at_start, self._before_object):
            self._syntax += self._lexer.take_all()
        return self._call.finish() if self._step == self._in_call else []

    def _at_start(self) -> list[Piece]:
        text = self._lexer.text.lstrip()
        if text:
            self._is_array = text[0] == "["
            if self._is_array:
                self._skip(text[1:])
            self._step = self._before_object
        return []

    def _before_object(self) -> list[Piece]:
        text = self._lexer.text.lstrip()
        if not text:
            return []
        self._skip(text)
        if text[0] == "{":
            self._begin_call()
        else:
            self._end(CallState.BROKEN)
        return []

    def _in_call(self) -> list[Piece]:
        pieces = self._call.feed(self._lexer.take_all())
        if pieces:
            self._syntax = ""
        self._lexer.feed(self._call.rest)
        if self._call.state is CallState.ENDED:
            self._step = self._after_call
        elif self._call.state is CallState.BROKEN:
            self._end(CallState.BROKEN)
        return pieces

    def _after_call(self) -> list[Piece]:
        text = self._lexer.text.lstrip(_SEPARATORS)
        if not text:
            return []
        if text[0] == "{":
            self._skip(text)
            self._begin_call()
            return []
        if self._is_array and self._lexer.text.lstrip()[0] == "]":
            self._lexer.skip_space()
            self._lexer.text = self._lexer.text[1:]
        self._step = self._at_close
        return []

    def _at_close(self) -> list[Piece]:
        if self._close is None or self._lexer.take_space_and(self._close) is not None:
            self._end(CallState.ENDED)
        return []

    def _begin_call(self) -> None:
        self._call = JsonCall(only=self._only)
        self._step = self._in_call

    def _skip(self, following: str) -> None:
        """What stands before `following` is syntax."""
        self._syntax += self._lexer.text[: len(self._lexer.text) - len(following)]
        self._lexer.text = following

    def _end(self, state: CallState) -> None:
        self.state = state
        self.rest = self._lexer.take_all()
