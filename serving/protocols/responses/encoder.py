"""Events to the typed events of a streamed response.

Items are written one after the other: whatever starts a new one closes the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from serving.core.errors import ServingError
from serving.core.events import (
    Completed,
    Event,
    Failed,
    Finished,
    FinishReason,
    Progress,
    PromptScored,
    ReasoningDelta,
    Started,
    TextDelta,
    TokensGenerated,
    ToolArgsDelta,
    ToolCallStarted,
    ToolInputDelta,
)
from serving.protocols.responses.answer import Answer, Cause
from serving.protocols.responses.items import (
    COMPLETED,
    INCOMPLETE,
    Item,
    OpenCall,
    OpenCustomCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
)
from serving.protocols.sse import DONE, json_bytes, json_text, named_frame


class ResponsesEncoder:
    """One stream. Its choices come one after the other."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._sequence_number = 0
        self._items: list[Item] = []
        self._open: OpenItem | None = None
        self._cuts: list[Cause] = []

    def feed(self, event: Event) -> bytes:
        match event:
            case TextDelta(tokens=()):
                start = b"" if isinstance(self._open, OpenMessage) else self._message()
                return start + self._delta(event.text)
            case TextDelta():
                start = b"" if isinstance(self._open, OpenMessage) else self._message()
                return start + self._text_and_tokens(event)
            case ReasoningDelta():
                start = b"" if isinstance(self._open, OpenReasoning) else self._thought()
                return start + self._delta(event.text)
            case ToolArgsDelta() | ToolInputDelta():
                return self._grow_call(event)
            case ToolCallStarted():
                call = OpenCustomCall if event.is_custom else OpenCall
                answer = self._answer
                return self._begin(call(answer.head, self._next_index, event, answer.names))
            case Started():
                return self._start()
            case Finished():
                return self._finish(event)
            case Progress() | PromptScored() | TokensGenerated():
                return b""
            case Completed():
                return self._complete(event)
            case Failed():
                return self._fail(event.error)
            case _:
                assert_never(event)

    @property
    def _next_index(self) -> int:
        return len(self._items) + (self._open is not None)

    def _start(self) -> bytes:
        response = self._answer.begun()
        return self._event("response.created", {"response": response}) + self._event(
            "response.in_progress", {"response": response}
        )

    def _message(self) -> bytes:
        return self._begin(OpenMessage(self._answer.head, self._next_index))

    def _thought(self) -> bytes:
        answer = self._answer
        is_packed = answer.packs_thoughts
        return self._begin(OpenReasoning(answer.head, self._next_index, is_packed=is_packed))

    def _begin(self, item: OpenItem) -> bytes:
        end = self._close(COMPLETED)
        self._open = item
        return end + b"".join([self._event(name, members) for name, members in item.opening()])

    def _grow_call(self, event: ToolArgsDelta | ToolInputDelta) -> bytes:
        item = self._open
        kind = OpenCall if isinstance(event, ToolArgsDelta) else OpenCustomCall
        if not isinstance(item, kind) or item.index != event.index:
            raise ValueError("a part of a tool call that is not the open item")
        return self._delta(event.text)

    def _delta(self, text: str) -> bytes:
        item = self._open
        assert item is not None, "a delta outside of any item"
        item.pieces.append(text)
        frame = b"%b%b%b%d}\n\n" % (
            item.delta_open,
            json_text(text),
            item.delta_close,
            self._sequence_number,
        )
        self._sequence_number += 1
        return frame

    def _text_and_tokens(self, event: TextDelta) -> bytes:
        item = self._open
        assert isinstance(item, OpenMessage), "text outside of a message"
        name, members = item.tell(event.text, event.tokens)
        return self._event(name, members)

    def _close(self, status: str) -> bytes:
        item = self._open
        if item is None:
            return b""
        self._open = None
        self._items.append(item.item(status))
        return b"".join([self._event(name, members) for name, members in item.closing(status)])

    def _finish(self, finished: Finished) -> bytes:
        if finished.reason is not FinishReason.LENGTH:
            return self._close(COMPLETED)
        self._cuts.append(finished.cause)
        return self._close(INCOMPLETE)

    def _complete(self, event: Completed) -> bytes:
        response = self._answer.finished(self._items, event.usage, event.at, cuts=self._cuts)
        return self._event(f"response.{response['status']}", {"response": response}) + DONE

    def _fail(self, error: ServingError) -> bytes:
        # Clients read nothing before the event that creates the response.
        start = self._start() if self._sequence_number == 0 else b""
        flat = {"code": error.code, "message": error.message, "param": error.param}
        unfinished = [] if self._open is None else [self._open.item(INCOMPLETE)]
        response = self._answer.failed([*self._items, *unfinished], error)
        return (
            start
            + self._event("error", flat)
            + self._event("response.failed", {"response": response})
            + DONE
        )

    def _event(self, name: str, members: Mapping[str, object]) -> bytes:
        numbered = {"type": name, **members, "sequence_number": self._sequence_number}
        self._sequence_number += 1
        return named_frame(name, json_bytes(numbered))
