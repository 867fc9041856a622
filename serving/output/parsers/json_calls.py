"""Tool calls that a model writes as JSON objects, after one opening tag or none:

    <tool_call>{"name": ..., "arguments": ...}</tool_call>
    functools[{"name": ..., "arguments": ...}, {"name": ..., "arguments": ...}]
    {"name": ..., "parameters": ...}; {"name": ..., "parameters": ...}
    get_weather[ARGS]{"city": "Paris"}

An opening is followed by one object or several with commas, semicolons or white space between
them, with or without an array around them. Models forget the closing bracket and the closing
tag, so both may be missing. The last form is a `HeadedCall`; a `Section` holds several of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self

from serving.output.json_text import JsonObject, JsonValue, UnquotedValue
from serving.output.lexer import Tag
from serving.output.parser import EventSink
from serving.output.parsers.base import CallReader, CallsFamily, CallState

_SEPARATORS: Final = " \t\r\n,;"
_ARGUMENT_KEYS: Final = frozenset(("arguments", "parameters"))
_CALL_KEYS: Final = _ARGUMENT_KEYS | {"name", "function", "type", "id"}
_NO_ARGUMENTS: Final = "{}"
# A head without a brace for longer than this is no head.
_MAX_HEAD_CHARS: Final = 512


class _JsonCall(JsonObject):
    """Reads one call as an object with a name and arguments.

    The keys may come in any order, and the arguments may be an object or a quoted string of
    one. The name may be under `function`, or both may be in an object under `function`. A call
    is sure when name and arguments have begun.

    `only`: the names that make an object a call. Then it must also have arguments, and only
    keys of calls. None: any name does, and other keys are ignored.
    """

    def __init__(self, sink: EventSink, only: Collection[str] | None) -> None:
        super().__init__()
        self.state = CallState.OPEN
        self.rest = ""
        self.pending = ""
        self.is_started = False
        self._sink = sink
        self._only = only
        self._depth = 0  # 1 inside the value of `function`
        self._name: str | None = None
        self._arguments: UnquotedValue | None = None
        self._early_args = ""  # before the name
        self._scalar = ""
        self._has_args_text = False

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text) and self.state is CallState.OPEN:
            at = self._step(text, at)
        self.pending = "" if self.is_started else self.pending + text[:at]
        self.rest = text[at:]

    def finish(self) -> None:
        if self.state is CallState.OPEN and self.is_started:
            if self._arguments and not self._arguments.is_complete:
                self._write(self._arguments.finish())
            else:
                self._end()

    def _in_key(self, text: str, at: int) -> int:
        at = super()._in_key(text, at)
        is_strange = self._only is not None and self._key not in _CALL_KEYS
        return self._break(text, at) if self._word.is_complete and is_strange else at

    def _begin_value(self, text: str, at: int) -> int:
        if self._key == "name" and self._name is None:
            self._step = self._in_name
        elif self._key == "function" and self._name is None and not self._depth:
            if text[at] == "{":
                self._depth = 1
                self._step = self._at_key
                return at + 1
            self._step = self._in_name
        elif self._key in _ARGUMENT_KEYS and self._arguments is None:
            self._arguments = UnquotedValue()
            self._step = self._in_arguments
        else:
            self._step = self._in_other
        return at

    def _in_name(self, text: str, at: int) -> int:
        at = self._word.take(text, at)
        if not self._word.is_complete:
            return at
        name = self._word.text if self._word.is_string else ""
        if not name or (self._only is not None and name not in self._only):
            return self._break(text, at)
        self._name = name
        if self._arguments:
            self._write("")
        self._step = self._at_key
        return at

    def _in_arguments(self, text: str, at: int) -> int:
        value = self._arguments
        assert value is not None
        at, args = value.take(text, at)
        if value.is_scalar:
            self._scalar += args
            args = self._scalar if value.is_complete and self._scalar != "null" else ""
        self._write(args)
        if value.is_complete:
            self._step = self._at_key
        return at

    def _write(self, args: str) -> None:
        self._has_args_text = self._has_args_text or bool(args)
        if self._name is None:
            self._early_args += args
            return
        if not self.is_started:
            self.is_started = True
            self._sink.start_call(self._name)
            args, self._early_args = self._early_args + args, ""
        self._sink.arguments(args)

    def _break(self, text: str, at: int) -> int:
        """A call that has started can only end here."""
        if self.is_started:
            self._end()
        else:
            self.state = CallState.BROKEN
        return at

    def _close(self, text: str, at: int) -> int:
        is_bare = self._only is not None and self._arguments is None
        if self._depth:
            self._depth -= 1
        elif self._name is None or is_bare:
            self.state = CallState.BROKEN
        else:
            self._end()
        return at

    def _end(self) -> None:
        if not self._has_args_text:
            self._write(_NO_ARGUMENTS)
        self._sink.end_call()
        self.state = CallState.ENDED


class JsonCalls(CallReader):
    """Reads the calls after `opening`, up to and with `close`.

    `is_array`: the opening has begun the array. `only`: see `_JsonCall`.
    """

    def __init__(
        self,
        sink: EventSink,
        opening: str = "",
        *,
        is_array: bool = False,
        close: Tag | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        super().__init__(sink, opening)
        self._close = close
        self._only = only
        self._step = self._before_object if is_array else self._at_start
        self._syntax = opening  # since the last call that has started
        self._is_array = is_array
        self._call = _JsonCall(sink, only)

    @classmethod
    def untagged(cls, sink: EventSink, begun: str, names: Collection[str]) -> Self:
        """Return a reader of calls without a tag, which has read the text `begun` already. Only
        calls of these names are calls."""
        calls = cls(sink, only=names)
        calls.feed(begun)
        return calls

    def feed(self, text: str) -> None:
        self._lexer.feed(text)
        self._run()
        self.pending = self._syntax + self._call.pending

    def finish(self) -> None:
        if self._step in (self._at_start, self._before_object):
            self._syntax += self._lexer.take_all()
        elif self._step == self._in_call:
            self._call.finish()
        self.pending = self._syntax + self._call.pending

    def _at_start(self) -> None:
        text = self._lexer.text.lstrip()
        if text:
            self._is_array = text[0] == "["
            if self._is_array:
                self._skip_to(text[1:])
            self._step = self._before_object

    def _before_object(self) -> None:
        text = self._lexer.text.lstrip()
        if not text:
            return
        self._skip_to(text)
        if text[0] == "{":
            self._begin_call()
        else:
            self._end(CallState.BROKEN)

    def _in_call(self) -> None:
        self._call.feed(self._lexer.take_all())
        if self._call.is_started:
            self._syntax = ""
        self._lexer.feed(self._call.rest)
        if self._call.state is CallState.ENDED:
            self._step = self._after_call
        elif self._call.state is CallState.BROKEN:
            self._end(CallState.BROKEN)

    def _after_call(self) -> None:
        text = self._lexer.text.lstrip(_SEPARATORS)
        if not text:
            return
        if text[0] == "{":
            self._skip_to(text)
            self._begin_call()
            return
        if self._is_array and self._lexer.text.lstrip()[0] == "]":
            self._lexer.skip_space()
            self._lexer.text = self._lexer.text[1:]
        self._step = self._at_close

    def _at_close(self) -> None:
        if self._close is None or self._lexer.take_space_and(self._close) is not None:
            self._end()

    def _begin_call(self) -> None:
        self._call = _JsonCall(self._sink, self._only)
        self._step = self._in_call

    def _skip_to(self, following: str) -> None:
        """The text before `following` is syntax."""
        self._syntax += self._lexer.text[: len(self._lexer.text) - len(following)]
        self._lexer.text = following


class HeadedCall(CallReader):
    """Reads one call whose name is in a head before a JSON object.

    `head` matches all text between `opening` and the first brace; its group `name` is the name
    of the tool.
    """

    def __init__(self, sink: EventSink, opening: str, head: re.Pattern[str]) -> None:
        super().__init__(sink, opening)
        self._opening = opening
        self._pattern = head
        self._head = ""
        self._value: JsonValue | None = None

    def feed(self, text: str) -> None:
        if self._value is not None:
            return self._in_arguments(self._value, text)
        self._head += text
        brace = self._head.find("{")
        if (len(self._head) if brace < 0 else brace) > _MAX_HEAD_CHARS:
            return self._break()
        if brace < 0:
            self.pending = self._opening + self._head
            return None
        head = self._pattern.fullmatch(self._head, 0, brace)
        if head is None:
            return self._break()
        self.pending = ""
        self._value = JsonValue()
        self._sink.start_call(head["name"])
        return self._in_arguments(self._value, self._head[brace:])

    def _in_arguments(self, value: JsonValue, text: str) -> None:
        end = value.scan(text, 0)
        self._sink.arguments(text[:end])
        if end is not None:
            self._sink.end_call()
            self.state = CallState.ENDED
            self.rest = text[end:]

    def _break(self) -> None:
        """The head is given back to be read again: it may hold an opening."""
        self.state = CallState.BROKEN
        self.pending = self._opening
        self.rest = self._head


@dataclass(frozen=True, slots=True)
class Section:
    """The tags around all calls and around each call, where a call is a head and a JSON object.

    `head`: see `HeadedCall`. `fence`: what may follow the object. The tags around all calls may
    be missing in the output.
    """

    begin: Tag
    end: Tag
    call_begin: Tag
    call_end: Tag
    head: re.Pattern[str]
    fence: Tag | None = None

    def family(self, *special_texts: str) -> CallsFamily:
        """Return the family of this section."""
        tags = self.begin, self.end, self.call_begin, self.call_end
        return CallsFamily(
            Tag(self.begin.text, self.call_begin.text),
            lambda sink, opening, _: SectionCalls(sink, opening, self),
            special_texts=frozenset((*(tag.text for tag in tags), *special_texts)),
        )


class SectionCalls(CallReader):
    """Reads what follows the first opening tag of a section, up to and with its last tag."""

    def __init__(self, sink: EventSink, opening: str, section: Section) -> None:
        super().__init__(sink, opening)
        self._section = section
        self._syntax = opening  # since the last call
        self._has_calls = False
        self._call: HeadedCall | None = None
        self._step = self._between
        if opening == section.call_begin.text:
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
        is_begun = self._lexer.take_space_and(self._section.call_begin)
        if is_begun:
            self._syntax += text[: len(text) - len(self._lexer.text)]
            self._begin_call()
        elif is_begun is False and not self._has_calls:
            self._end(CallState.BROKEN)
        elif is_begun is False and self._lexer.take_space_and(self._section.end) is not None:
            self._end()

    def _begin_call(self) -> None:
        self._call = HeadedCall(self._sink, self._syntax, self._section.head)
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
        fence = self._section.fence
        if fence is None or self._lexer.take_space_and(fence) is not None:
            self._step = self._at_call_end

    def _at_call_end(self) -> None:
        if self._lexer.take_space_and(self._section.call_end) is not None:
            self._step = self._between
