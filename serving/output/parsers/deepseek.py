"""Tool calls of DeepSeek. V3 and R1 write the arguments in a fence:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

V3.1 and later write neither the kind nor the fence nor line breaks (added here):

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>
    {"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Both are read, whichever is expected. The outer tags may be missing.
"""

from __future__ import annotations

import re

from serving.output.lexer import Tag
from serving.output.parser import EventSink
from serving.output.parsers.base import CallReader, CallsFamily, CallState
from serving.output.parsers.json_calls import HeadedCall

CALLS_BEGIN, CALLS_END = Tag("<｜tool▁calls▁begin｜>"), Tag("<｜tool▁calls▁end｜>")
CALL_BEGIN, CALL_END = Tag("<｜tool▁call▁begin｜>"), Tag("<｜tool▁call▁end｜>")
_OPENING = Tag(CALLS_BEGIN.text, CALL_BEGIN.text)
SEPARATOR = "<｜tool▁sep｜>"
_FENCE = Tag("```")
_HEAD = re.compile(
    rf"\s*(?:\w+{SEPARATOR}\s*(?=[\w.-]))?(?P<name>[\w.-]+)"
    rf"\s*(?:{SEPARATOR}\s*)?(?:```(?:json)?\s*)?",
    re.ASCII,
)


class _Calls(CallReader):
    """Reads what follows the first opening tag, up to and with the last closing tag."""

    def __init__(self, sink: EventSink, opening: str) -> None:
        super().__init__(sink, opening)
        self._syntax = opening  # since the last call
        self._has_calls = False
        self._call: HeadedCall | None = None
        self._step = self._between
        if opening == CALL_BEGIN.text:
            self._begin_call()

    def feed(self, text: str) -> None:
        self._lexer.feed(text)
        self._run()
        self._update_pending()

    def finish(self) -> None:
        self._syntax += self._lexer.take_all()
        self._update_pending()

    def _update_pending(self) -> None:
        if self._call is not None:
            self.pending = self._call.pending
        else:
            self.pending = "" if self._has_calls else self._syntax

    def _between(self) -> None:
        text = self._lexer.text
        is_begun = self._lexer.take_space_and(CALL_BEGIN)
        if is_begun:
            self._syntax += text[: len(text) - len(self._lexer.text)]
            self._begin_call()
        elif is_begun is False and not self._has_calls:
            self._end(CallState.BROKEN)
        elif is_begun is False and self._lexer.take_space_and(CALLS_END) is not None:
            self._end()

    def _begin_call(self) -> None:
        self._call = HeadedCall(self._sink, self._syntax, _HEAD)
        self._step = self._in_call

    def _in_call(self) -> None:
        assert self._call is not None
        self._call.feed(self._lexer.take_all())
        self._lexer.feed(self._call.rest)
        if self._call.state is CallState.BROKEN:
            self._end(CallState.BROKEN)
        elif self._call.state is CallState.ENDED:
            self._call, self._syntax, self._has_calls = None, "", True
            self._step = self._at_fence

    def _at_fence(self) -> None:
        if self._lexer.take_space_and(_FENCE) is not None:
            self._step = self._at_call_end

    def _at_call_end(self) -> None:
        if self._lexer.take_space_and(CALL_END) is not None:
            self._step = self._between


DEEPSEEK = CallsFamily(
    _OPENING,
    lambda sink, opening, _: _Calls(sink, opening),
    special_texts=frozenset(
        (CALLS_BEGIN.text, CALL_BEGIN.text, SEPARATOR, CALL_END.text, CALLS_END.text)
    ),
)
