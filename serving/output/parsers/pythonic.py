"""Families that write tool calls in Python: Llama and LFM2.

    [get_weather(city="Paris", days=3), get_time()]

The list is between tags, or alone. Without tags it is a list of calls where it begins with
one of the request's tools. Arguments have names, or are in a dictionary after two stars. They
become JSON text while they grow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from serving.core.request import Tool
from serving.output.lexer import Tag
from serving.output.parser import EventSink
from serving.output.parsers.argument_types import quoted
from serving.output.parsers.base import CallReader, CallsFamily, CallState
from serving.output.parsers.literal_text import PYTHON, LiteralValue

_SPACE: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"[\w.\-]*")
_KEY: Final = re.compile(r"[^\s=,()\[\]{}\"']*")
_STARS: Final = "**"


class PythonicCalls(CallReader):
    """Reads the calls after `opening`, up to and with `close`.

    `opening` is a tag, or the bracket and name of the first call with its parenthesis. A single
    call may do without the brackets.
    """

    def __init__(self, sink: EventSink, opening: str, *, close: Tag | None = None) -> None:
        super().__init__(sink, opening)
        self._close = close
        self._text = ""
        # The index in the text where `pending` goes on. None: in a call that has started.
        self._pending_from: int | None = 0
        self._is_list = opening.endswith("(")
        self._take: Callable[[int], int] = self._at_key if self._is_list else self._at_list
        self._name = opening[1:-1] if self._is_list else ""
        self._has_calls = False
        self._has_arguments = False
        self._is_whole = False  # the arguments are one dictionary
        self._before = ""  # the JSON text before the next value
        self._value = LiteralValue(PYTHON)

    def feed(self, text: str) -> None:
        self._text += text
        at = 0
        while self.state is CallState.OPEN:
            take, start = self._take, at
            at = take(at)
            if self._take == take and at == start:
                break
        if self._pending_from is not None:
            self.pending += self._text[self._pending_from : at]
            self._pending_from = 0
        self._text = self._text[at:]
        if self.state is not CallState.OPEN:
            self.rest = self._text

    def finish(self) -> None:
        """Drop what only leads to another call: a comma."""
        if self._pending_from is not None:
            self.pending += self._text
        if self._take in (self._after_call, self._at_close) or self.pending.strip() == ",":
            self.pending = ""

    # Each step takes some of the text from `at` on, and returns the index where it stopped. A
    # step that takes nothing waits for more text.

    def _at_list(self, at: int) -> int:
        at = self._after_space(at)
        if at == len(self._text):
            return at
        self._is_list = self._text[at] == "["
        self._take = self._at_name
        return at + self._is_list

    def _at_name(self, at: int) -> int:
        at = self._after_space(at)
        end = _end(_NAME, self._text, at)
        if end == len(self._text):
            return at
        if self._text[at] == "]" and self._has_calls:
            self._take = self._at_close
            return at + 1
        if end == at:
            return self._break(at)
        self._name = self._text[at:end]
        self._take = self._at_parenthesis
        return end

    def _at_parenthesis(self, at: int) -> int:
        at = self._after_space(at)
        if at == len(self._text):
            return at
        if self._text[at] != "(":
            return self._break(at)
        self._has_arguments = self._is_whole = False
        self._take = self._at_key
        return at + 1

    def _at_key(self, at: int) -> int:
        at = self._after_space(at)
        if _STARS.startswith(self._text[at:]):
            return at
        if self._text[at] == ")":
            self._start_call()
            return self._end_call(at)
        if self._text.startswith(_STARS, at):
            self._take = self._at_dictionary
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
        """Any text may hold names. With its first value it is sure to be a call."""
        at, args = self._value.take(self._text, at)
        if args:
            self._start_call()
            self._sink.arguments(self._before + args)
            self._before = ""
        if self._value.is_broken:
            return self._break(at)
        if self._value.is_complete:
            self._take = self._after_argument
        return at

    def _after_argument(self, at: int) -> int:
        at = self._after_space(at)
        if at == len(self._text):
            return at
        if self._text[at] == ")":
            return self._end_call(at)
        if self._text[at] != ",":
            return self._break(at)
        self._take = self._at_key
        return at + 1

    def _after_call(self, at: int) -> int:
        after = self._after_space(at)
        if after == len(self._text):
            return at
        self._take = self._at_close
        if self._text[after] == "]":
            return after + 1
        if self._text[after] == ",":
            self._take = self._at_name
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
        self._take = self._in_value

    def _start_call(self) -> None:
        if self._pending_from is not None:
            self._pending_from = None
            self.pending = ""
            self._has_calls = True
            self._sink.start_call(self._name)

    def _end_call(self, at: int) -> int:
        """At the parenthesis that ends a call."""
        if not self._is_whole:
            self._sink.arguments("}" if self._has_arguments else "{}")
        self._sink.end_call()
        self._pending_from = at + 1
        self._take = self._after_call if self._is_list else self._at_close
        return at + 1

    def _break(self, at: int) -> int:
        """A call that has started can only end here."""
        if self._pending_from is None:
            self._sink.end_call()
            self.state = CallState.ENDED
        else:
            self.state = CallState.BROKEN
        return at

    def _after_space(self, at: int) -> int:
        return _end(_SPACE, self._text, at)


@dataclass(frozen=True, slots=True)
class ListTags:
    """The tags around a list of calls. `end` may be missing in the output; "" is for families
    without one. `is_bare`: the models usually write the list without tags."""

    begin: str
    end: str
    is_bare: bool = False


def _family(tags: ListTags) -> CallsFamily:
    """Return a family that differs from others only in its tags."""
    close = Tag(tags.end) if tags.end else None

    def opening(tools: Sequence[Tool]) -> Tag:
        return Tag(tags.begin, *(bare_opening(tool) for tool in tools if tags.is_bare))

    return CallsFamily(
        opening,
        lambda sink, opening, _: PythonicCalls(sink, opening, close=close),
        special_texts=frozenset(filter(None, (tags.begin, tags.end))),
    )


def bare_opening(tool: Tool) -> str:
    """What begins a list of calls without tags."""
    return f"[{tool.name}("


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


# Llama 3.2 and 3.3, whose models write their tag for code before some lists, and Llama 4.
LLAMA3_TAGS = ListTags("<|python_tag|>", "", is_bare=True)
LLAMA4_TAGS = ListTags("<|python_start|>", "<|python_end|>", is_bare=True)
# LFM2 and LFM2.5.
LFM2_TAGS = ListTags("<|tool_call_start|>", "<|tool_call_end|>")

LLAMA3_PYTHONIC = _family(LLAMA3_TAGS)
LLAMA4_PYTHONIC = _family(LLAMA4_TAGS)
LFM2 = _family(LFM2_TAGS)
