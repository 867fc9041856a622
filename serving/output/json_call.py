"""One tool call that a model writes as a JSON object with a name and arguments.

    {"name": "get_weather", "arguments": {"city": "Paris"}}

The keys may come in any order, and the arguments may be an object or a quoted string of
one. The name may be called `function`, or both may stand in an object of that name.
Arguments are passed on while they grow. Until a call is sure (name and arguments both met)
nothing is told, so that text which is no call can be given back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from serving.output.call_reader import CallState
from serving.output.json_text import JsonUnquote, JsonValue, unquote
from serving.output.parse_events import CallArgs, CallEnded, CallStarted, Piece

_SPACE = re.compile(r"\s*")
_SPACE_AND_COMMAS = re.compile(r"[\s,]*")

# Some families say "parameters" for what others call "arguments".
_ARGUMENT_KEYS = frozenset({"arguments", "parameters"})
_CALL_KEYS = _ARGUMENT_KEYS | {"name", "function", "type", "id"}

NO_ARGUMENTS = "{}"


class JsonCall:
    """Reads one call.

    `only`: the names that make an object a call. Then it must also have arguments, and no
    key that a call has not. None: any name does, and other keys do no harm.
    """

    def __init__(self, *, only: Collection[str] | None = None) -> None:
        self.state = CallState.OPEN
        self.rest = ""
        # All text so far while nothing has been told: what to give back if it is no call.
        self.untold = ""
        self._is_told = False
        self._only = only
        self._depth = 0  # 1 inside the value of `function`
        self._step: Callable[[str, int], int] = self._at_start
        self._pieces: list[Piece] = []
        self._key = ""
        self._name: str | None = None
        self._word = _Word()
        self._arguments: _Arguments | None = None
        self._early_args = ""
        self._has_args_text = False

    def feed(self, text: str) -> list[Piece]:
        """The pieces that more text makes. Not to be called once the state is not OPEN."""
        at = 0
        while at < len(text) and self.state is CallState.OPEN:
            at = self._step(text, at)
        self.untold = "" if self._is_told else self.untold + text[:at]
        self.rest = text[at:]
        return self._take_pieces()

    def finish(self) -> list[Piece]:
        """The text is over. A call that is cut inside its arguments stays open."""
        if self.state is CallState.OPEN and self._is_told:
            if self._arguments and not self._arguments.is_complete:
                self._tell(self._arguments.finish())
            else:
                self._end()
        return self._take_pieces()

    def _take_pieces(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    # Each step takes some of the text from `at` on, and returns where it stopped.

    def _at_start(self, text: str, at: int) -> int:
        at = _after(_SPACE, text, at)
        if at < len(text):
            at = self._expect("{", text, at, self._at_key)
        return at

    def _at_key(self, text: str, at: int) -> int:
        at = _after(_SPACE_AND_COMMAS, text, at)
        if at == len(text):
            return at
        if text[at] == "}":
            if self._depth:
                self._depth -= 1
            else:
                self._close()
            return at + 1
        if text[at] != '"':
            return self._break(at)
        self._word = _Word()
        self._step = self._in_key
        return at

    def _in_key(self, text: str, at: int) -> int:
        at = self._word.take(text, at)
        if self._word.is_complete:
            self._key = self._word.text
            self._step = self._at_colon
            if self._only is not None and self._key not in _CALL_KEYS:
                return self._break(at)
        return at

    def _at_colon(self, text: str, at: int) -> int:
        at = _after(_SPACE, text, at)
        if at < len(text):
            at = self._expect(":", text, at, self._at_value)
        return at

    def _at_value(self, text: str, at: int) -> int:
        at = _after(_SPACE, text, at)
        if at == len(text):
            return at
        self._word = _Word()
        if self._key == "name" and self._name is None:
            self._step = self._in_name
        elif self._key == "function" and self._name is None and not self._depth:
            return self._at_function(text, at)
        elif self._key in _ARGUMENT_KEYS and self._arguments is None:
            self._arguments = _Arguments()
            self._step = self._in_arguments
        else:
            self._step = self._in_other
        return at

    def _at_function(self, text: str, at: int) -> int:
        if text[at] != "{":
            self._step = self._in_name
            return at
        self._depth = 1
        self._step = self._at_key
        return at + 1

    def _in_name(self, text: str, at: int) -> int:
        at = self._word.take(text, at)
        if not self._word.is_complete:
            return at
        if not self._word.is_string or not self._word.text:
            return self._break(at)
        if self._only is not None and self._word.text not in self._only:
            return self._break(at)
        self._name = self._word.text
        if self._arguments:
            self._tell("")
        self._step = self._at_key
        return at

    def _in_other(self, text: str, at: int) -> int:
        at = self._word.take(text, at)
        if self._word.is_complete:
            self._step = self._at_key
        return at

    def _in_arguments(self, text: str, at: int) -> int:
        assert self._arguments is not None
        at, args = self._arguments.take(text, at)
        self._tell(args)
        if self._arguments.is_complete:
            self._step = self._at_key
        return at

    def _expect(self, mark: str, text: str, at: int, then: Callable[[str, int], int]) -> int:
        if text[at] != mark:
            return self._break(at)
        self._step = then
        return at + 1

    def _tell(self, args: str) -> None:
        self._has_args_text = self._has_args_text or bool(args)
        if self._name is None:
            self._early_args += args
            return
        if not self._is_told:
            self._is_told = True
            self._pieces.append(CallStarted(self._name))
            args, self._early_args = self._early_args + args, ""
        if args:
            self._pieces.append(CallArgs(args))

    def _break(self, at: int) -> int:
        """This is no JSON. A call that was told already can only end here."""
        if self._is_told:
            self._end()
        else:
            self.state = CallState.BROKEN
        return at

    def _close(self) -> None:
        is_bare = self._only is not None and self._arguments is None
        if self._name is None or is_bare:
            self.state = CallState.BROKEN
        else:
            self._end()

    def _end(self) -> None:
        if not self._has_args_text:
            self._tell(NO_ARGUMENTS)
        self._pieces.append(CallEnded())
        self.state = CallState.ENDED


class _Word:
    """A key, a name, or a value that nobody asked for: kept until it is complete."""

    def __init__(self) -> None:
        self._value = JsonValue()
        self._raw = ""
        self.is_complete = False

    @property
    def is_string(self) -> bool:
        return self._value.is_string

    @property
    def text(self) -> str:
        """What is between the quotes of a string."""
        return unquote(self._raw[1:-1])

    def take(self, text: str, at: int) -> int:
        end = self._value.scan(text, at)
        self._raw += text[at:end]
        self.is_complete = end is not None
        return len(text) if end is None else end


class _Arguments:
    """Turns the text of the arguments' value into the JSON text that clients get."""

    def __init__(self) -> None:
        self._value = JsonValue()
        self._unquote = JsonUnquote()
        self._scalar = ""
        self._has_quote = False
        self.is_complete = False

    def take(self, text: str, at: int) -> tuple[int, str]:
        """Where the value stops in `text`, and what it adds to the arguments."""
        end = self._value.scan(text, at)
        grown = text[at:end]
        self.is_complete = end is not None
        told = self._grow(grown)
        return at + len(grown), told

    def finish(self) -> str:
        """What an unfinished escape says when the text is over."""
        return self._unquote.finish()

    def _grow(self, grown: str) -> str:
        if self._value.is_container:
            return grown
        if self._value.is_string:
            return self._inside(grown)
        self._scalar += grown
        is_said = self.is_complete and self._scalar != "null"
        return self._scalar if is_said else ""

    def _inside(self, grown: str) -> str:
        if not self._has_quote:
            self._has_quote = True
            grown = grown[1:]
        if not self.is_complete:
            return self._unquote.feed(grown)
        return self._unquote.feed(grown[:-1]) + self._unquote.finish()


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    skipped = pattern.match(text, at)
    return skipped.end() if skipped else at
