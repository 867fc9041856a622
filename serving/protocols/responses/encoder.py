"""The response object, and the encoder of a streamed response.

The items of a response are written one after the other: the start of an item closes the one
before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from serving.core.errors import ServingError
from serving.core.events import (
    QUOTA,
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
    Usage,
)
from serving.protocols.common.chunks import output_details
from serving.protocols.common.encoding import DONE, json_bytes, json_text, named_frame
from serving.protocols.common.exchange import Encoder
from serving.protocols.responses.items import (
    COMPLETED,
    INCOMPLETE,
    Item,
    ItemEncoder,
    OpenCall,
    OpenCustomCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
)

ResponseObject = dict[str, object]
Cause = str | int | None  # see `core.events.Finished`


@dataclass(frozen=True, slots=True)
class ResponseEncoder:
    """Encodes the response object in each of its states. Every state has all members.

    `echo` holds the members that repeat the request. `length_reason` is the reason of an
    incomplete response.
    """

    items: ItemEncoder
    echo: Mapping[str, object]
    length_reason: str

    def started(self) -> ResponseObject:
        """Return a response without output."""
        return self._object("in_progress", ())

    def finished(
        self, items: Sequence[Item], usage: Usage, completed_at: int, *, cuts: Collection[Cause]
    ) -> ResponseObject:
        """Return a completed response, or an incomplete one if choices reached a limit.

        `cuts` holds the causes of these choices. As in chats, the `stop_reason` is that of a
        quota.
        """
        counts = _usage_object(usage)
        if cuts:
            details = {"reason": self.length_reason}
            if QUOTA in cuts:
                details["stop_reason"] = QUOTA
            return self._object("incomplete", items, usage=counts, incomplete_details=details)
        return self._object("completed", items, usage=counts, completed_at=completed_at)

    def failed(self, items: Sequence[Item], error: ServingError) -> ResponseObject:
        """Return a response that ended with an error, with the items before it."""
        details = {"code": _error_code(error), "message": error.message}
        return self._object("failed", items, error=details)

    def _object(
        self,
        status: str,
        items: Sequence[Item],
        *,
        usage: object = None,
        completed_at: int | None = None,
        error: object = None,
        incomplete_details: object = None,
    ) -> ResponseObject:
        return {
            "id": self.items.identity.id("resp_"),
            "object": "response",
            "created_at": self.items.identity.created_at,
            "status": status,
            "completed_at": completed_at,
            "error": error,
            "incomplete_details": incomplete_details,
            "model": self.items.identity.model,
            "output": items,
            "usage": usage,
            **self.echo,
        }


def _usage_object(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.num_prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.num_cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.num_output_tokens,
        "output_tokens_details": output_details(usage),
        "total_tokens": usage.num_tokens,
    }


def _error_code(error: ServingError) -> str:
    """Return the nearest of the codes that strict clients accept."""
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if error.status < 500 else "server_error"


class ResponsesEncoder:
    """Encodes the events of one stream. The choices must come one after the other."""

    def __init__(self, response: ResponseEncoder) -> None:
        self._response = response
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
                start = b"" if isinstance(self._open, OpenReasoning) else self._reasoning()
                return start + self._delta(event.text)
            case ToolArgsDelta() | ToolInputDelta():
                return self._call_delta(event)
            case ToolCallStarted():
                call = OpenCustomCall if event.is_custom else OpenCall
                return self._begin(call(self._response.items, self._next_index, event))
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
        response = self._response.started()
        return self._event("response.created", {"response": response}) + self._event(
            "response.in_progress", {"response": response}
        )

    def _message(self) -> bytes:
        return self._begin(OpenMessage(self._response.items, self._next_index))

    def _reasoning(self) -> bytes:
        return self._begin(OpenReasoning(self._response.items, self._next_index))

    def _begin(self, item: OpenItem) -> bytes:
        end = self._close(COMPLETED)
        self._open = item
        return end + b"".join([self._event(name, members) for name, members in item.opening()])

    def _call_delta(self, event: ToolArgsDelta | ToolInputDelta) -> bytes:
        item = self._open
        kind = OpenCall if isinstance(event, ToolArgsDelta) else OpenCustomCall
        if not isinstance(item, kind) or item.call_index != event.index:
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

    def _text_and_tokens(self, event: TextDelta) -> bytes:
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
        return b"".join([self._event(name, members) for name, members in item.closing(status)])

    def _finish(self, finished: Finished) -> bytes:
        if finished.reason is not FinishReason.LENGTH:
            return self._close(COMPLETED)
        self._cuts.append(finished.cause)
        return self._close(INCOMPLETE)

    def _complete(self, event: Completed) -> bytes:
        response = self._response.finished(self._items, event.usage, event.at, cuts=self._cuts)
        return self._event(f"response.{response['status']}", {"response": response}) + DONE

    def _fail(self, error: ServingError) -> bytes:
        # Clients ignore events before the one that creates the response.
        start = self._start() if self._sequence_number == 0 else b""
        flat = {"code": error.code, "message": error.message, "param": error.param}
        unfinished = [] if self._open is None else [self._open.item(INCOMPLETE)]
        response = self._response.failed([*self._items, *unfinished], error)
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


class ChoicesInOrder:
    """Feeds another encoder one choice after the other. The events of a later choice wait
    until all choices before it have finished."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._current = 0
        self._waiting: dict[int, list[Event]] = {}

    def feed(self, event: Event) -> bytes:
        match event:
            case Started() | PromptScored() | Progress() | Completed() | Failed():
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
