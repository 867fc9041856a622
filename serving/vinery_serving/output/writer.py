"""The events of one choice, from the findings of the parser. Stop strings come after the parser
because they are about the text that a client reads: reasoning or the syntax of a tool call must not
end a choice, and neither may text from both sides of a call."""

import json
import re
from collections.abc import Callable, Container, Iterable, Sequence

from vinery_serving.core.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from vinery_serving.core.request import Tool
from vinery_serving.core.tools import INPUT
from vinery_serving.output.attribution import Attribution
from vinery_serving.output.stop import StopStrings

_GAP = "\n"  # between the texts of two messages, which clients get as one text
_NAME_SPACES = re.compile(r".*[.:]")


class EventWriter:
    """Turns the findings of a parser into the events of one choice. Empty text adds nothing.
    `new_call_id` returns the id of the call of an index. `tools`: the calls of custom tools among
    them have an input instead of arguments. `exposes_tokens`: text comes with the tokens that are
    fed to `attribution`."""

    def __init__(
        self,
        choice: int,
        *,
        new_call_id: Callable[[int], str],
        tools: Sequence[Tool] = (),
        stop: Sequence[str] = (),
        include_stop_text: bool = False,
        hides_reasoning: bool = False,
        exposes_tokens: bool = False,
    ) -> None:
        self.choice = choice
        self._new_call_id = new_call_id
        self._tool_names = frozenset(tool.name for tool in tools)
        self._custom_tools = frozenset(tool.name for tool in tools if tool.is_custom)
        self.stops = StopStrings(stop, include=include_stop_text) if stop else None
        self._hides_reasoning = hides_reasoning
        self.attribution = Attribution() if exposes_tokens else None
        self._events: list[Event] = []
        # False before the least number of tokens: text until then is no part of a stop string.
        self.checks_stop = True
        self.stop_string: str | None = None  # the stop string that ended the choice
        self.num_calls = 0
        self.has_open_call = False
        self._input: _CustomInput | None = None  # of the open call of a custom tool
        self.has_text = self._has_reasoning = False
        self._text_gap = self._reasoning_gap = ""

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was met. More is ignored."""
        return self.stop_string is not None

    def take(self) -> list[Event]:
        """Return the events since the last call of this method. Text that belongs together is
        one delta."""
        events, self._events = self._events, []
        return events

    def text(self, text: str) -> None:
        if not text or self.is_stopped:
            return
        if self._text_gap:
            text, self._text_gap = self._text_gap + text, ""
        self.has_text = True
        if self.stops is not None and self.checks_stop:
            text = self.stops.feed(text)
            self.stop_string = self.stops.met
        self._write_text(text)

    def reasoning(self, text: str) -> None:
        if not text or self.is_stopped:
            return
        self._release()
        if self._reasoning_gap:
            text, self._reasoning_gap = self._reasoning_gap + text, ""
        self._has_reasoning = True
        if self.attribution is not None:
            self.attribution.take(text)
        if not self._hides_reasoning:
            append(self._events, ReasoningDelta(self.choice, text))

    def start_call(self, name: str) -> None:
        """Start a tool call. `arguments` and then `end_call` follow, unless the text is cut."""
        if self.is_stopped:
            return
        self._release()
        self._drop_tokens()
        name = known_name(name, self._tool_names)
        index, is_custom = self.num_calls, name in self._custom_tools
        self.num_calls += 1
        self.has_open_call = True
        self._input = _CustomInput() if is_custom else None
        call_id = self._new_call_id(index)
        self._events.append(ToolCallStarted(self.choice, index, call_id, name, is_custom))

    def arguments(self, text: str) -> None:
        if not text or self.is_stopped:
            return
        self._drop_tokens()
        if self._input is not None:
            self._write_input(self._input.feed(text))
        else:
            append(self._events, ToolCallDelta(self.choice, self.num_calls - 1, text))

    def end_call(self) -> None:
        if self.is_stopped:
            return
        self._drop_tokens()
        if self._input is not None:
            self._write_input(self._input.end())
            self._input = None
        self.has_open_call = False

    def end_message(self) -> None:
        """Put a line break before the text and the reasoning of the next message."""
        self._text_gap = _GAP if self.has_text else ""
        self._reasoning_gap = _GAP if self._has_reasoning else ""

    def finish(self) -> None:
        if self._input is not None:
            self._write_input(self._input.cut())
        self._release()

    def write_silent_tokens(self) -> None:
        tokens = self.attribution.take_silent() if self.attribution is not None else ()
        if tokens:
            append(self._events, TextDelta(self.choice, "", tokens))

    def _write_text(self, text: str) -> None:
        if text:
            tokens = () if self.attribution is None else self.attribution.take(text)
            append(self._events, TextDelta(self.choice, text, tokens))

    def _write_input(self, text: str) -> None:
        if text:
            delta = ToolCallDelta(self.choice, self.num_calls - 1, text, is_custom=True)
            append(self._events, delta)

    def _release(self) -> None:
        """Pass on the held text: no stop string can be completed."""
        if self.stops is not None and not self.is_stopped:
            self._write_text(self.stops.release())

    def _drop_tokens(self) -> None:
        """The text of a call is not the answer's, so its tokens are not exposed."""
        if self.attribution is not None:
            self.attribution.drop()


def known_name(written: str, names: Container[str]) -> str:
    """Return the tool's name: models put a name space before names that have none, as in
    `get_weather.get_weather` or `google:tools:edit`."""
    last = _NAME_SPACES.sub("", written)
    return last if written not in names and last in names else written


def merged(events: Iterable[Event]) -> list[Event]:
    result: list[Event] = []
    for event in events:
        append(result, event)
    return result


def append(events: list[Event], event: Event) -> None:
    """Append an event, or join it with the last event where both are parts of the same text."""
    last = events[-1] if events else None
    if type(last) is not type(event):
        events.append(event)
        return
    match last, event:
        case TextDelta(choice, before, tokens), TextDelta(_, after, more):
            events[-1] = TextDelta(choice, before + after, tokens + more)
        case ReasoningDelta(choice, before), ReasoningDelta(_, after):
            events[-1] = ReasoningDelta(choice, before + after)
        case ToolCallDelta(choice, index, before, is_custom), ToolCallDelta(_, same, after) if (
            index == same
        ):
            events[-1] = ToolCallDelta(choice, index, before + after, is_custom)
        case _:
            events.append(event)


# Arguments whose first member is the input, up to and with its first quote.
_INPUT_FIRST = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_HEX = r"[0-9a-fA-F]{4}"
_HIGH, _LOW = r"[dD][89abAB][0-9a-fA-F]{2}", r"[dD][c-fC-F][0-9a-fA-F]{2}"
# Characters and escapes of a string that are complete. A high surrogate waits for the low one.
_COMPLETE = re.compile(rf'(?:[^"\\]+|\\[^u]|\\u(?!{_HIGH}){_HEX}|\\u{_HIGH}\\u{_HEX})*+')


class _CustomInput:
    r"""The input of a custom tool, out of the arguments that the model writes.

        {"input": "print(\"hi\")\n"}        becomes        print("hi")

    The model sees such a tool as a function of one string (see `core/tools`). The growing string is
    passed on without escapes. Arguments of another form are passed on at their end: the input among
    other members, a value that is no string as JSON, and arguments without an input as they were
    written.
    """

    def __init__(self) -> None:
        self._text = ""  # not passed on
        self._is_in_string = self._has_ended = False

    def feed(self, args: str) -> str:
        self._text += args
        if not self._is_in_string and (begin := _INPUT_FIRST.match(self._text)):
            self._is_in_string, self._text = True, self._text[begin.end() :]
        if not self._is_in_string or self._has_ended:
            return ""
        complete = _COMPLETE.match(self._text)
        assert complete is not None
        self._text = self._text[complete.end() :]
        self._has_ended = self._text.startswith('"')
        return _unquoted(complete[0])

    def end(self) -> str:
        return self.cut() if self._is_in_string else _input_of(self._text)

    def cut(self) -> str:
        """Return the rest when the call is cut: text that is not yet an input is dropped."""
        return self._text if self._is_in_string and not self._has_ended else ""


def _input_of(args: str) -> str:
    try:
        value = json.loads(args)
    except (ValueError, RecursionError):
        return args
    if isinstance(value, dict):
        if value and INPUT not in value:
            return args
        value = value.get(INPUT, "")
    return sendable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _unquoted(raw: str) -> str:
    """Return the text between the quotes of a JSON string. Models write bare line breaks in
    strings."""
    try:
        return sendable(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


def sendable(text: str) -> str:
    """Half of a surrogate pair could not be sent on as UTF-8."""
    return text.encode("utf-8", "replace").decode()
