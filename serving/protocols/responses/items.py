"""The output items of a response: their finished shapes, and how they grow in a stream.

An `OpenItem` is the item that a stream is writing. It knows the events that surround its
deltas, and ends in the same shape that a unary answer has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, assert_never

from serving.core.events import FinishReason, ToolCallStarted
from serving.core.ids import AnswerIdentity
from serving.core.logprobs import Token
from serving.core.request import ToolCall
from serving.core.result import ChoiceResult, CustomCall, ReasoningItem, TextItem
from serving.core.result import Item as CoreItem
from serving.protocols.logprobs import content_logprobs
from serving.protocols.responses.names import Names, named
from serving.protocols.responses.thoughts import packed
from serving.protocols.sse import json_bytes

Item = dict[str, object]
# The name of an event, and its members but for `type` and `sequence_number`.
NamedEvent = tuple[str, dict[str, object]]

IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"


def output_items(
    head: AnswerIdentity, choices: Iterable[ChoiceResult], names: Names, *, packs_thoughts: bool
) -> Sequence[Item]:
    """The items of a finished answer, choice after choice."""
    told = [pair for choice in choices for pair in _with_status(choice)]
    return [
        _finished(head, at, item, status, names, packs_thoughts=packs_thoughts)
        for at, (item, status) in enumerate(told)
    ]


def _with_status(choice: ChoiceResult) -> Iterable[tuple[CoreItem, str]]:
    """A cut answer was cut in its last item."""
    last = len(choice.items) - 1
    is_cut = choice.finish_reason is FinishReason.LENGTH
    for at, item in enumerate(choice.items):
        yield item, INCOMPLETE if is_cut and at == last else COMPLETED


def _finished(
    head: AnswerIdentity,
    at: int,
    item: CoreItem,
    status: str,
    names: Names,
    *,
    packs_thoughts: bool,
) -> Item:
    match item:
        case TextItem(text=text, tokens=tokens):
            return message_item(head.item_id("msg_", at), [_text_part(text, tokens)], status)
        case ReasoningItem(text=text):
            return reasoning_item(head.item_id("rs_", at), text, status, is_packed=packs_thoughts)
        case ToolCall():
            return call_item(head.item_id("fc_", at), item, status, names)
        case CustomCall():
            return custom_item(head.item_id("ctc_", at), item, status, names)
        case _:
            assert_never(item)


def message_item(item_id: str, content: Sequence[Item], status: str) -> Item:
    """Answer text."""
    return {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def reasoning_item(item_id: str, text: str | None, status: str, *, is_packed: bool) -> Item:
    """Thinking; `text` None before it has begun. Some clients read the summary, others
    the content, so both hold the whole of it."""
    parts = () if text is None else (text,)
    return {
        "id": item_id,
        "type": "reasoning",
        "status": status,
        "summary": [_summary_part(part) for part in parts],
        "content": [_thought_part(part) for part in parts],
        "encrypted_content": packed(text) if is_packed and text is not None else None,
    }


def call_item(item_id: str, call: ToolCall, status: str, names: Names) -> Item:
    """A call of a function."""
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        **named(call.name, names),
        "arguments": call.arguments,
    }


def custom_item(item_id: str, call: CustomCall, status: str, names: Names) -> Item:
    """A call of a custom tool."""
    return {
        "id": item_id,
        "type": "custom_tool_call",
        "status": status,
        "call_id": call.id,
        **named(call.name, names),
        "input": call.input,
    }


def _text_part(text: str, tokens: Sequence[Token]) -> Item:
    logprobs = content_logprobs(tokens)
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _thought_part(text: str) -> Item:
    return {"type": "reasoning_text", "text": text}


def _summary_part(text: str) -> Item:
    return {"type": "summary_text", "text": text}


class OpenItem(Protocol):
    """The item that is being written."""

    # The constant bytes of a delta's frame: before its text, and from there up to the
    # sequence number, which closes the object.
    delta_open: bytes
    delta_close: bytes
    pieces: list[str]

    def opening(self) -> Iterable[NamedEvent]:
        """The events before the first delta."""

    def closing(self, status: str) -> Iterable[NamedEvent]:
        """The events after the last delta."""

    def item(self, status: str) -> Item:
        """The item with all that has been written so far."""


def _delta_open(name: str, place: dict[str, object]) -> bytes:
    members = json_bytes({"type": name, **place})[:-1]
    return b'event: %b\ndata: %b,"delta":' % (name.encode(), members)


class OpenMessage:
    """A message with its one text part."""

    delta_close = b',"logprobs":[],"sequence_number":'

    def __init__(self, head: AnswerIdentity, at: int) -> None:
        self._id = head.item_id("msg_", at)
        self._at = {"output_index": at}
        self._place = {"item_id": self._id, "output_index": at, "content_index": 0}
        self.delta_open = _delta_open("response.output_text.delta", self._place)
        self.pieces: list[str] = []
        self._tokens: list[Token] = []

    def tell(self, text: str, tokens: Sequence[Token]) -> NamedEvent:
        """The event of a delta whose tokens are told."""
        self.pieces.append(text)
        self._tokens += tokens
        logprobs = content_logprobs(tokens)
        return "response.output_text.delta", {**self._place, "delta": text, "logprobs": logprobs}

    def opening(self) -> Iterable[NamedEvent]:
        bare = message_item(self._id, (), IN_PROGRESS)
        yield "response.output_item.added", {**self._at, "item": bare}
        yield "response.content_part.added", {**self._place, "part": _text_part("", ())}

    def closing(self, status: str) -> Iterable[NamedEvent]:
        text = "".join(self.pieces)
        logprobs = content_logprobs(self._tokens)
        part = _text_part(text, self._tokens)
        yield "response.output_text.done", {**self._place, "text": text, "logprobs": logprobs}
        yield "response.content_part.done", {**self._place, "part": part}
        yield "response.output_item.done", {**self._at, "item": self.item(status)}

    def item(self, status: str) -> Item:
        part = _text_part("".join(self.pieces), self._tokens)
        return message_item(self._id, [part], status)


class OpenReasoning:
    """Thinking, streamed as a summary: the only deltas of it that every client knows. Its
    content follows in one piece."""

    delta_close = b',"sequence_number":'

    def __init__(self, head: AnswerIdentity, at: int, *, is_packed: bool) -> None:
        self._is_packed = is_packed
        self._id = head.item_id("rs_", at)
        self._at = {"output_index": at}
        self._place = {"item_id": self._id, "output_index": at, "summary_index": 0}
        self._content = {"item_id": self._id, "output_index": at, "content_index": 0}
        self.delta_open = _delta_open("response.reasoning_summary_text.delta", self._place)
        self.pieces: list[str] = []

    def opening(self) -> Iterable[NamedEvent]:
        bare = reasoning_item(self._id, None, IN_PROGRESS, is_packed=False)
        yield "response.output_item.added", {**self._at, "item": bare}
        part = _summary_part("")
        yield "response.reasoning_summary_part.added", {**self._place, "part": part}

    def closing(self, status: str) -> Iterable[NamedEvent]:
        text = "".join(self.pieces)
        yield "response.reasoning_summary_text.done", {**self._place, "text": text}
        part = _summary_part(text)
        yield "response.reasoning_summary_part.done", {**self._place, "part": part}
        yield "response.content_part.added", {**self._content, "part": _thought_part("")}
        yield "response.reasoning_text.done", {**self._content, "text": text}
        yield "response.content_part.done", {**self._content, "part": _thought_part(text)}
        yield "response.output_item.done", {**self._at, "item": self.item(status)}

    def item(self, status: str) -> Item:
        text = "".join(self.pieces)
        return reasoning_item(self._id, text, status, is_packed=self._is_packed)


class OpenCall:
    """A call whose name is known and whose arguments are being written."""

    delta_close = b',"sequence_number":'

    def __init__(self, head: AnswerIdentity, at: int, start: ToolCallStarted, names: Names) -> None:
        self._names = names
        self.index = start.index  # among the calls, not among the items
        self._id = head.item_id("fc_", at)
        self._call_id = start.id
        self._name = start.name
        self._at = {"output_index": at}
        # The `call_id` is OVMS's addition.
        self._place = {"item_id": self._id, "output_index": at, "call_id": self._call_id}
        self.delta_open = _delta_open("response.function_call_arguments.delta", self._place)
        self.pieces: list[str] = []

    def opening(self) -> Iterable[NamedEvent]:
        yield "response.output_item.added", {**self._at, "item": self.item(IN_PROGRESS)}

    def closing(self, status: str) -> Iterable[NamedEvent]:
        done = {**self._place, **named(self._name, self._names), "arguments": "".join(self.pieces)}
        yield "response.function_call_arguments.done", done
        yield "response.output_item.done", {**self._at, "item": self.item(status)}

    def item(self, status: str) -> Item:
        call = ToolCall(self._call_id, self._name, "".join(self.pieces))
        return call_item(self._id, call, status, self._names)


class OpenCustomCall:
    """A call of a custom tool whose input is being written."""

    delta_close = b',"sequence_number":'

    def __init__(self, head: AnswerIdentity, at: int, start: ToolCallStarted, names: Names) -> None:
        self._names = names
        self.index = start.index  # among the calls, not among the items
        self._id = head.item_id("ctc_", at)
        self._start = start
        self._at = {"output_index": at}
        self._place = {"item_id": self._id, "output_index": at}
        self.delta_open = _delta_open("response.custom_tool_call_input.delta", self._place)
        self.pieces: list[str] = []

    def opening(self) -> Iterable[NamedEvent]:
        yield "response.output_item.added", {**self._at, "item": self.item(IN_PROGRESS)}

    def closing(self, status: str) -> Iterable[NamedEvent]:
        done = {**self._place, "input": "".join(self.pieces)}
        yield "response.custom_tool_call_input.done", done
        yield "response.output_item.done", {**self._at, "item": self.item(status)}

    def item(self, status: str) -> Item:
        call = CustomCall(self._start.id, self._start.name, "".join(self.pieces))
        return custom_item(self._id, call, status, self._names)
