"""The input of a custom tool, out of the arguments that the model writes.

    {"input": "print(\\"hi\\")\\n"}        becomes        print("hi")

The model sees such a tool as a function of one string (see `core/tools`). The string is passed
on without its escapes while it grows. Arguments of another form are not lost: a value that is no
string is passed on as JSON, and arguments without an input as they were written.
"""

from __future__ import annotations

from serving.core.tools import INPUT
from serving.output.json_text import JsonObject, UnquotedValue


class CustomInput(JsonObject):
    """Reads the arguments of one call."""

    def __init__(self) -> None:
        super().__init__()
        # All arguments so far, to pass on if there is no input among them.
        self._written = ""
        self._has_members = False
        self._value = UnquotedValue()
        self._input: list[str] = []

    def feed(self, args: str) -> str:
        """Return what more arguments add to the input."""
        if self._is_undecided:
            self._written += args
        at = 0
        while at < len(args):
            at = self._step(args, at)
        return self._take()

    def end(self) -> str:
        """Return the rest of the input when the call is complete."""
        if self._is_undecided:
            self._input.append(self._written)
        return self._take() + self._value.finish()

    def cut(self) -> str:
        """Return the rest when the call is cut: what is not yet an input is dropped."""
        return self._value.finish()

    def _take(self) -> str:
        text, self._input = "".join(self._input), []
        return text

    @property
    def _is_undecided(self) -> bool:
        return self._step not in (self._in_input, self._as_written, self._after_input)

    def _begin_value(self, text: str, at: int) -> int:
        self._has_members = True
        self._step = self._in_input if self._key == INPUT else self._in_other
        return at

    def _close(self, text: str, at: int) -> int:
        if self._has_members:
            return self._break(text, at)
        self._step = self._after_input
        return at

    def _break(self, text: str, at: int) -> int:
        """The arguments are the input: there is none among them. Or a string is, alone."""
        if self._step == self._at_start and text[at] == '"':
            self._step = self._in_input
            return at
        self._input.append(self._written)
        self._step = self._as_written
        return len(text)

    def _in_input(self, text: str, at: int) -> int:
        at, grown = self._value.take(text, at)
        self._input.append(grown)
        if self._value.is_complete:
            self._step = self._after_input
        return at

    def _as_written(self, text: str, at: int) -> int:
        self._input.append(text[at:])
        return len(text)

    def _after_input(self, text: str, at: int) -> int:
        return len(text)
