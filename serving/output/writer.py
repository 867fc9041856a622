"""The events of one choice, from what its parser finds.

The writer numbers calls, joins neighbouring text, and applies stop strings. Stop strings come
after the parser because they are about the text that a client reads: reasoning or the syntax of
a tool call must not end a choice, and neither may text from both sides of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from serving.core.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallStarted,
    ToolInputDelta,
)
from serving.core.request import Tool
from serving.output.attribution import Attribution
from serving.output.custom_input import CustomInput
from serving.output.stop import StopStrings

# Between the texts of two messages, which clients get as one text.
_GAP = "\n"


class EventWriter:
    """The `EventSink` of one choice.

    `new_call_id` returns the id of the call of an index. `tools`: the calls of custom tools
    among them have an input instead of arguments. `exposes_tokens`: text comes with the tokens
    that are fed to `attribution`.
    """

    def __init__(
        self,
        choice: int,
        *,
        new_call_id: Callable[[int], str],
        tools: Iterable[Tool] = (),
        stop: Sequence[str] = (),
        include_stop_text: bool = False,
        hides_reasoning: bool = False,
        exposes_tokens: bool = False,
    ) -> None:
        self.choice = choice
        self._new_call_id = new_call_id
        self._custom_tools = frozenset(tool.name for tool in tools if tool.is_custom)
        self._stop = StopStrings(stop, include=include_stop_text) if stop else None
        self._hides_reasoning = hides_reasoning
        self.attribution = Attribution() if exposes_tokens else None
        self._events: list[Event] = []
        # False before the least number of tokens: text until then is no part of a stop string.
        self.checks_stop = True
        self.stop_string: str | None = None  # the one that ended the choice
        self.num_calls = 0
        self.has_open_call = False
        self._input: CustomInput | None = None  # of the open call of a custom tool
        self._has_text = self._has_reasoning = False
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
        self._has_text = True
        if self._stop is not None and self.checks_stop:
            text = self._stop.feed(text)
            self.stop_string = self._stop.met
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
        if self.is_stopped:
            return
        self._release()
        self._drop_tokens()
        index, is_custom = self.num_calls, name in self._custom_tools
        self.num_calls += 1
        self.has_open_call = True
        self._input = CustomInput() if is_custom else None
        call_id = self._new_call_id(index)
        self._events.append(ToolCallStarted(self.choice, index, call_id, name, is_custom))

    def arguments(self, text: str) -> None:
        if not text or self.is_stopped:
            return
        self._drop_tokens()
        if self._input is not None:
            self._write_input(self._input.feed(text))
        else:
            append(self._events, ToolArgsDelta(self.choice, self.num_calls - 1, text))

    def end_call(self) -> None:
        if self.is_stopped:
            return
        self._drop_tokens()
        if self._input is not None:
            self._write_input(self._input.end())
            self._input = None
        self.has_open_call = False

    def end_message(self) -> None:
        self._text_gap = _GAP if self._has_text else ""
        self._reasoning_gap = _GAP if self._has_reasoning else ""

    def finish(self) -> None:
        """Write what was held back. An open call stays open."""
        if self._input is not None:
            self._write_input(self._input.cut())
        self._release()

    def write_silent_tokens(self) -> None:
        """Expose the last tokens, which have no text."""
        tokens = self.attribution.take_silent() if self.attribution is not None else ()
        if tokens:
            append(self._events, TextDelta(self.choice, "", tokens))

    def _write_text(self, text: str) -> None:
        if text:
            tokens = () if self.attribution is None else self.attribution.take(text)
            append(self._events, TextDelta(self.choice, text, tokens))

    def _write_input(self, text: str) -> None:
        if text:
            append(self._events, ToolInputDelta(self.choice, self.num_calls - 1, text))

    def _release(self) -> None:
        """Nothing that follows can complete a stop string that has begun."""
        if self._stop is not None and not self.is_stopped:
            self._write_text(self._stop.release())

    def _drop_tokens(self) -> None:
        """The text of a call is not the answer's, so its tokens are not exposed."""
        if self.attribution is not None:
            self.attribution.drop()


def merged(events: Iterable[Event]) -> list[Event]:
    """Return all events in order, with neighbouring deltas of the same text as one."""
    result: list[Event] = []
    for event in events:
        append(result, event)
    return result


def append(events: list[Event], event: Event) -> None:
    """Append an event, or join it with the last one where both are parts of the same text."""
    last = events[-1] if events else None
    if type(last) is not type(event):
        events.append(event)
        return
    match last, event:
        case TextDelta(choice, before, tokens), TextDelta(_, after, more):
            events[-1] = TextDelta(choice, before + after, tokens + more)
        case ReasoningDelta(choice, before), ReasoningDelta(_, after):
            events[-1] = ReasoningDelta(choice, before + after)
        case ToolArgsDelta(choice, index, before), ToolArgsDelta(_, same, after) if index == same:
            events[-1] = ToolArgsDelta(choice, index, before + after)
        case ToolInputDelta(choice, index, before), ToolInputDelta(_, same, after) if index == same:
            events[-1] = ToolInputDelta(choice, index, before + after)
        case _:
            events.append(event)
