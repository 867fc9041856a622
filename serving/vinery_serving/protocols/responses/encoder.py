"""The encoder of a streamed response."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import (
    Completed,
    Event,
    Finished,
    FinishReason,
    FirstToken,
    OfChoice,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from vinery_serving.core.logprobs import Token
from vinery_serving.core.request import ToolCall
from vinery_serving.core.result import Item as CoreItem
from vinery_serving.core.result import ReasoningItem, TextItem
from vinery_serving.protocols.common.encoding import DONE, json_bytes, json_text, named_frame
from vinery_serving.protocols.common.exchange import Encoder, ItemEncoder, OpenItem
from vinery_serving.protocols.common.logprobs import content_logprobs
from vinery_serving.protocols.responses.objects import (
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    Cause,
    Item,
    Members,
    Response,
    ResponseEvent,
    ResponseObjects,
    SummaryText,
    ThoughtText,
    text_part,
)


class _OpenItem(OpenItem):
    """The item that the stream is writing, with the events around its deltas."""

    prefix: ClassVar[str]
    # The name of the events, before `.delta` and `.done`.
    event: ClassVar[str]
    # The members of a delta that are the same in all items of the kind.
    position_in_item: ClassVar[Members] = {}
    # The bytes of a delta's frame between its text and its sequence number.
    delta_close: ClassVar[bytes] = b',"sequence_number":'

    def __init__(self, objects: ResponseObjects, index: int, **position: Any) -> None:
        self._objects = objects
        self._index = index
        item_id = objects.identity.item_id(self.prefix, index)
        self._item_position = {"item_id": item_id, "output_index": index}
        self.position: Members = {**self._item_position, **self.position_in_item, **position}
        name = f"{self.event}.delta"
        members = json_bytes({"type": name, **self.position})[:-1]
        self.delta_open = b'event: %b\ndata: %b,"delta":' % (name.encode(), members)
        self.texts: list[str] = []

    def opening(self) -> Iterable[ResponseEvent]:
        item = self._objects.item(self._index, self._core_item(""), IN_PROGRESS, is_empty=True)
        yield ResponseEvent(type="response.output_item.added", output_index=self._index, item=item)
        yield from self._part_opening()

    def closing(self, item: Item) -> Iterable[ResponseEvent]:
        """Yield the events after the last delta of `item`."""
        yield from self._part_closing("".join(self.texts))
        yield ResponseEvent(type="response.output_item.done", output_index=self._index, item=item)

    def item(self, status: str) -> Item:
        """Return the item with all deltas so far."""
        return self._objects.item(self._index, self._core_item("".join(self.texts)), status)

    @abstractmethod
    def _core_item(self, text: str) -> CoreItem: ...

    def _part_opening(self) -> Iterable[ResponseEvent]:
        return ()

    @abstractmethod
    def _part_closing(self, text: str) -> Iterable[ResponseEvent]: ...

    def _event(self, event: str, /, **members: Any) -> ResponseEvent:
        return ResponseEvent(type=f"response.{event}", **self.position, **members)


class _OpenMessage(_OpenItem):
    """A message with its one text part."""

    deltas = TextDelta
    prefix = "msg_"
    event = "response.output_text"
    position_in_item: ClassVar[Members] = {"content_index": 0}
    delta_close = b',"logprobs":[],"sequence_number":'

    def __init__(self, objects: ResponseObjects, index: int) -> None:
        super().__init__(objects, index)
        self._tokens: list[Token] = []

    def scored(self, event: TextDelta) -> ResponseEvent:
        """Add a delta with log-probabilities, and return its event."""
        self.texts.append(event.text)
        self._tokens += event.tokens
        logprobs = content_logprobs(event.tokens)
        return self._event("output_text.delta", delta=event.text, logprobs=logprobs)

    def _core_item(self, text: str) -> CoreItem:
        return TextItem(text, tuple(self._tokens))

    def _part_opening(self) -> Iterable[ResponseEvent]:
        yield self._event("content_part.added", part=text_part(""))

    def _part_closing(self, text: str) -> Iterable[ResponseEvent]:
        part = text_part(text, self._tokens)
        yield self._event("output_text.done", text=text, logprobs=part.logprobs)
        yield self._event("content_part.done", part=part)


class _OpenReasoning(_OpenItem):
    """Reasoning. Its deltas are those of a summary, which every client reads. Its content
    follows in one part."""

    deltas = ReasoningDelta
    prefix = "rs_"
    event = "response.reasoning_summary_text"
    position_in_item: ClassVar[Members] = {"summary_index": 0}

    def _core_item(self, text: str) -> CoreItem:
        return ReasoningItem(text)

    def _part_opening(self) -> Iterable[ResponseEvent]:
        yield self._event("reasoning_summary_part.added", part=SummaryText(text=""))

    def _part_closing(self, text: str) -> Iterable[ResponseEvent]:
        yield self._event("reasoning_summary_text.done", text=text)
        yield self._event("reasoning_summary_part.done", part=SummaryText(text=text))
        self.position = {**self._item_position, "content_index": 0}
        yield self._event("content_part.added", part=ThoughtText(text=""))
        yield self._event("reasoning_text.done", text=text)
        yield self._event("content_part.done", part=ThoughtText(text=text))


class _OpenCall(_OpenItem):
    """A call of a function."""

    prefix = "fc_"
    event = "response.function_call_arguments"

    def __init__(self, objects: ResponseObjects, index: int, start: ToolCallStarted) -> None:
        # `call_id` is from OVMS.
        super().__init__(objects, index, **({} if start.is_custom else {"call_id": start.id}))
        self.start = start
        self._call = ToolCall(start.id, start.name, "", start.is_custom)

    def _core_item(self, text: str) -> CoreItem:
        return replace(self._call, arguments=text)

    def _part_closing(self, text: str) -> Iterable[ResponseEvent]:
        names = self._objects.name(self._call.name)
        yield self._event("function_call_arguments.done", **names, arguments=text)


class _OpenCustomCall(_OpenCall):
    """A call of a custom tool."""

    prefix = "ctc_"
    event = "response.custom_tool_call_input"

    def _part_closing(self, text: str) -> Iterable[ResponseEvent]:
        yield self._event("custom_tool_call_input.done", input=text)


class ResponsesEncoder(ItemEncoder[_OpenItem]):
    """Encodes the events of one stream."""

    def __init__(self, objects: ResponseObjects) -> None:
        super().__init__()
        self._objects = objects
        self._sequence_number = 0
        self._items: list[Item] = []
        self._cuts: list[Cause] = []
        self._is_in_progress = True

    def _encode(self, event: Event) -> bytes:
        if not self._is_in_progress and isinstance(event, OfChoice):
            return self._progress() + super()._encode(event)
        return super()._encode(event)

    def _start(self, event: Started) -> bytes:
        self._objects = self._objects.with_sampling(event.sampling)
        created = self._state("response.created", self._objects.started())
        self._is_in_progress = False
        return created if self._objects.dialect.shows_first_token else created + self._progress()

    def _progress(self) -> bytes:
        self._is_in_progress = True
        return self._state("response.in_progress", self._objects.started())

    def _new(self, event: TextDelta | ReasoningDelta | ToolCallStarted) -> _OpenItem:
        index = len(self._items)
        match event:
            case TextDelta():
                return _OpenMessage(self._objects, index)
            case ReasoningDelta():
                return _OpenReasoning(self._objects, index)
            case ToolCallStarted():
                kind = _OpenCustomCall if event.is_custom else _OpenCall
                return kind(self._objects, index, event)

    def _delta(self, item: _OpenItem, event: TextDelta | ReasoningDelta | ToolCallDelta) -> bytes:
        if isinstance(event, TextDelta) and event.tokens and isinstance(item, _OpenMessage):
            return self._frame(item.scored(event))
        item.texts.append(event.text)
        text, number = json_text(event.text), self._sequence_number
        self._sequence_number += 1
        return b"%b%b%b%d}\n\n" % (item.delta_open, text, item.delta_close, number)

    def _close(self, status: str = COMPLETED) -> bytes:
        opened, self._open = self._open, None
        if opened is None:
            return b""
        item = opened.item(status)
        self._items.append(item)
        return self._frames(opened.closing(item))

    def _finish(self, event: Finished) -> bytes:
        if event.reason is not FinishReason.LENGTH:
            return self._close()
        self._cuts.append(event.cause)
        return self._close(INCOMPLETE)

    def _complete(self, event: Completed) -> bytes:
        response = self._objects.finished(self._items, event.usage, event.at, cuts=self._cuts)
        return self._state(f"response.{response.status}", response) + DONE

    def _fail(self, error: ServingError) -> bytes:
        # Clients ignore events before the one that creates the response.
        start = self._start(Started()) if self._sequence_number == 0 else b""
        flat = ResponseEvent(
            type="error", code=error.code, message=error.message, param=error.param
        )
        unfinished = [] if self._open is None else [self._open.item(INCOMPLETE)]
        response = self._objects.failed([*self._items, *unfinished], error)
        return start + self._frame(flat) + self._state("response.failed", response) + DONE

    def _state(self, name: str, response: Response) -> bytes:
        return self._frame(ResponseEvent(type=name, response=response))

    def _frame(self, event: ResponseEvent) -> bytes:
        event.sequence_number = self._sequence_number
        self._sequence_number += 1
        return named_frame(event.type, json_bytes(event))


class ChoicesInOrder:
    """Feeds another encoder one choice after the other. The events of a later choice wait
    until all choices before it have finished."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._current = 0
        self._waiting: dict[int, list[Event]] = {}

    def feed(self, event: Event) -> bytes:
        match event:
            case _ if not isinstance(event, OfChoice) or isinstance(event, FirstToken):
                return self._encoder.feed(event)
            case _ if event.choice == self._current:
                frames = self._encoder.feed(event)
                return frames + self._release() if isinstance(event, Finished) else frames
            case _:
                self._waiting.setdefault(event.choice, []).append(event)
                return b""

    def _release(self) -> bytes:
        """Encode the waiting events of the next choice, and of its finished successors."""
        frames = b""
        is_finished = True
        while is_finished:
            self._current += 1
            waiting = self._waiting.pop(self._current, [])
            frames += b"".join([self._encoder.feed(event) for event in waiting])
            is_finished = bool(waiting) and isinstance(waiting[-1], Finished)
        return frames
