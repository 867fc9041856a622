"""The encoder of a streamed response.

The items of a response are written one after the other: the start of an item closes the one
before.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, assert_never

from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import (
    Arrived,
    Completed,
    Event,
    Failed,
    Finished,
    FinishReason,
    FirstToken,
    OfChoice,
    Progress,
    PromptScored,
    ReasoningDelta,
    Started,
    TextDelta,
    TokensGenerated,
    ToolCallDelta,
    ToolCallStarted,
)
from vinery_serving.core.logprobs import Token
from vinery_serving.core.request import ToolCall
from vinery_serving.core.result import Item as CoreItem
from vinery_serving.core.result import ReasoningItem, TextItem
from vinery_serving.protocols.common.encoding import DONE, json_bytes, json_text, named_frame
from vinery_serving.protocols.common.exchange import Encoder
from vinery_serving.protocols.common.logprobs import content_logprobs
from vinery_serving.protocols.responses.objects import (
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    Cause,
    Item,
    ResponseObjects,
    reasoning_part,
    text_part,
)

# The name of an event, and its members without `type` and `sequence_number`.
NamedEvent = tuple[str, Mapping[str, object]]


class OpenItem(ABC):
    """The item that the stream is writing, with the events around its deltas."""

    prefix: ClassVar[str]
    # The name of the events, before `.delta` and `.done`.
    event: ClassVar[str]
    # The members of a delta that are the same in all items of the kind.
    position_in_item: ClassVar[Mapping[str, object]] = {}
    # The bytes of a delta's frame between its text and its sequence number.
    delta_close: ClassVar[bytes] = b',"sequence_number":'

    def __init__(self, objects: ResponseObjects, index: int, **position: object) -> None:
        self._objects = objects
        self._index = index
        item_id = objects.identity.item_id(self.prefix, index)
        self._item_position = {"item_id": item_id, "output_index": index}
        self.position = {**self._item_position, **self.position_in_item, **position}
        name = f"{self.event}.delta"
        members = json_bytes({"type": name, **self.position})[:-1]
        # The bytes of a delta's frame before its text.
        self.delta_open = b'event: %b\ndata: %b,"delta":' % (name.encode(), members)
        self.texts: list[str] = []

    def opening(self) -> Iterable[NamedEvent]:
        """Yield the events before the first delta."""
        item = self._objects.item(self._index, self._core_item(""), IN_PROGRESS, is_empty=True)
        yield "response.output_item.added", {"output_index": self._index, "item": item}
        yield from self._part_opening()

    def closing(self, status: str) -> Iterable[NamedEvent]:
        """Yield the events after the last delta."""
        yield from self._part_closing("".join(self.texts))
        done = {"output_index": self._index, "item": self.item(status)}
        yield "response.output_item.done", done

    def item(self, status: str) -> Item:
        """Return the item with all deltas so far."""
        return self._objects.item(self._index, self._core_item("".join(self.texts)), status)

    @abstractmethod
    def _core_item(self, text: str) -> CoreItem: ...

    def _part_opening(self) -> Iterable[NamedEvent]:
        return ()

    @abstractmethod
    def _part_closing(self, text: str) -> Iterable[NamedEvent]: ...


class OpenMessage(OpenItem):
    """A message with its one text part."""

    prefix = "msg_"
    event = "response.output_text"
    position_in_item: ClassVar[Mapping[str, object]] = {"content_index": 0}
    delta_close = b',"logprobs":[],"sequence_number":'

    def __init__(self, objects: ResponseObjects, index: int) -> None:
        super().__init__(objects, index)
        self._tokens: list[Token] = []

    def add(self, text: str, tokens: Sequence[Token]) -> NamedEvent:
        """Add a delta with log-probabilities, and return its event."""
        self.texts.append(text)
        self._tokens += tokens
        members = {**self.position, "delta": text, "logprobs": content_logprobs(tokens)}
        return f"{self.event}.delta", members

    def _core_item(self, text: str) -> CoreItem:
        return TextItem(text, tuple(self._tokens))

    def _part_opening(self) -> Iterable[NamedEvent]:
        yield "response.content_part.added", {**self.position, "part": text_part("")}

    def _part_closing(self, text: str) -> Iterable[NamedEvent]:
        part = text_part(text, self._tokens)
        done = {**self.position, "text": text, "logprobs": part["logprobs"]}
        yield f"{self.event}.done", done
        yield "response.content_part.done", {**self.position, "part": part}


class OpenReasoning(OpenItem):
    """Reasoning. Its deltas are those of a summary, which every client reads. Its content
    follows in one part."""

    prefix = "rs_"
    event = "response.reasoning_summary_text"
    position_in_item: ClassVar[Mapping[str, object]] = {"summary_index": 0}

    def _core_item(self, text: str) -> CoreItem:
        return ReasoningItem(text)

    def _part_opening(self) -> Iterable[NamedEvent]:
        part = reasoning_part("summary_text", "")
        yield "response.reasoning_summary_part.added", {**self.position, "part": part}

    def _part_closing(self, text: str) -> Iterable[NamedEvent]:
        content = {**self._item_position, "content_index": 0}
        part = reasoning_part("summary_text", text)
        yield f"{self.event}.done", {**self.position, "text": text}
        yield "response.reasoning_summary_part.done", {**self.position, "part": part}
        yield (
            "response.content_part.added",
            {**content, "part": reasoning_part("reasoning_text", "")},
        )
        yield "response.reasoning_text.done", {**content, "text": text}
        yield (
            "response.content_part.done",
            {**content, "part": reasoning_part("reasoning_text", text)},
        )


class OpenCall(OpenItem):
    """A call of a function."""

    prefix = "fc_"
    event = "response.function_call_arguments"

    def __init__(self, objects: ResponseObjects, index: int, start: ToolCallStarted) -> None:
        # `call_id` is from OVMS.
        super().__init__(objects, index, **({} if start.is_custom else {"call_id": start.id}))
        self.start = start

    def _core_item(self, text: str) -> CoreItem:
        return ToolCall(self.start.id, self.start.name, text, self.start.is_custom)

    def _part_closing(self, text: str) -> Iterable[NamedEvent]:
        names = self._objects.name(self.start.name)
        yield f"{self.event}.done", {**self.position, **names, "arguments": text}


class OpenCustomCall(OpenCall):
    """A call of a custom tool."""

    prefix = "ctc_"
    event = "response.custom_tool_call_input"

    def _part_closing(self, text: str) -> Iterable[NamedEvent]:
        yield f"{self.event}.done", {**self.position, "input": text}


class ResponsesEncoder:
    """Encodes the events of one stream. The choices must come one after the other."""

    def __init__(self, objects: ResponseObjects) -> None:
        self._objects = objects
        self._sequence_number = 0
        self._items: list[Item] = []
        self._open: OpenItem | None = None
        self._cuts: list[Cause] = []
        self._is_in_progress = True

    def feed(self, event: Event) -> bytes:
        if not self._is_in_progress and isinstance(event, OfChoice):
            return self._progress() + self.feed(event)
        match event:
            case TextDelta():
                start = b"" if isinstance(self._open, OpenMessage) else self._begin(OpenMessage)
                return start + (self._scored(event) if event.tokens else self._delta(event.text))
            case ReasoningDelta():
                start = b"" if isinstance(self._open, OpenReasoning) else self._begin(OpenReasoning)
                return start + self._delta(event.text)
            case ToolCallDelta():
                return self._call_delta(event)
            case ToolCallStarted():
                call = OpenCustomCall if event.is_custom else OpenCall
                return self._begin(partial(call, start=event))
            case Started():
                return self._start(event)
            case Finished():
                return self._finish(event)
            case Progress() | Arrived() | PromptScored() | FirstToken() | TokensGenerated():
                return b""
            case Completed():
                return self._complete(event)
            case Failed():
                return self._fail(event.error)
            case _:
                assert_never(event)

    def _start(self, event: Started) -> bytes:
        self._objects = self._objects.with_sampling(event.sampling)
        created = self._event("response.created", {"response": self._objects.started()})
        self._is_in_progress = False
        return created if self._objects.dialect.shows_first_token else created + self._progress()

    def _progress(self) -> bytes:
        self._is_in_progress = True
        return self._event("response.in_progress", {"response": self._objects.started()})

    def _begin(self, kind: Callable[[ResponseObjects, int], OpenItem]) -> bytes:
        end = self._close(COMPLETED)
        self._open = kind(self._objects, len(self._items))
        return end + self._events(self._open.opening())

    def _call_delta(self, event: ToolCallDelta) -> bytes:
        item = self._open
        if not isinstance(item, OpenCall) or item.start.index != event.index:
            raise ValueError("a delta of a tool call that is not the open item")
        return self._delta(event.text)

    def _delta(self, text: str) -> bytes:
        item = self._open
        assert item is not None, "a delta outside of any item"
        item.texts.append(text)
        frame = b"%b%b%b%d}\n\n" % (
            item.delta_open,
            json_text(text),
            item.delta_close,
            self._sequence_number,
        )
        self._sequence_number += 1
        return frame

    def _scored(self, event: TextDelta) -> bytes:
        item = self._open
        assert isinstance(item, OpenMessage), "text outside of a message"
        name, members = item.add(event.text, event.tokens)
        return self._event(name, members)

    def _close(self, status: str) -> bytes:
        item = self._open
        if item is None:
            return b""
        self._open = None
        self._items.append(item.item(status))
        return self._events(item.closing(status))

    def _finish(self, finished: Finished) -> bytes:
        if finished.reason is not FinishReason.LENGTH:
            return self._close(COMPLETED)
        self._cuts.append(finished.cause)
        return self._close(INCOMPLETE)

    def _complete(self, event: Completed) -> bytes:
        response = self._objects.finished(self._items, event.usage, event.at, cuts=self._cuts)
        return self._event(f"response.{response['status']}", {"response": response}) + DONE

    def _fail(self, error: ServingError) -> bytes:
        # Clients ignore events before the one that creates the response.
        start = self._start(Started()) if self._sequence_number == 0 else b""
        flat = {"code": error.code, "message": error.message, "param": error.param}
        unfinished = [] if self._open is None else [self._open.item(INCOMPLETE)]
        response = self._objects.failed([*self._items, *unfinished], error)
        return (
            start
            + self._event("error", flat)
            + self._event("response.failed", {"response": response})
            + DONE
        )

    def _events(self, events: Iterable[NamedEvent]) -> bytes:
        return b"".join([self._event(name, members) for name, members in events])

    def _event(self, name: str, members: Mapping[str, object]) -> bytes:
        numbered = {"type": name, **members, "sequence_number": self._sequence_number}
        self._sequence_number += 1
        return named_frame(name, json_bytes(numbered))


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
