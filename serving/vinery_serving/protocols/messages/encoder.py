"""The encoder of a streamed message.

The blocks of a message are written one after the other: the start of a block closes the one
before. The start of the message waits for the first token, with which the cached tokens are known;
the last event has the usage of the whole message.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, assert_never

from vinery_serving.core.events import (
    Arrived,
    Completed,
    Event,
    Failed,
    Finished,
    FirstToken,
    Progress,
    PromptScored,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenCounts,
    TokensGenerated,
    ToolCallDelta,
    ToolCallStarted,
)
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import GenerationRequest
from vinery_serving.protocols.common.encoding import json_bytes, json_text, named_frame
from vinery_serving.protocols.messages.answer import (
    SIGNATURE,
    UNFINISHED,
    ending,
    message,
    tool_use_id,
    usage_object,
)
from vinery_serving.protocols.messages.errors import error_object


def _event(name: str, **members: object) -> bytes:
    return named_frame(name, json_bytes({"type": name, **members}))


PING = _event("ping")


class _OpenBlock(ABC):
    """The block that the stream is writing."""

    # The type of a delta, and the name of its text.
    delta: ClassVar[tuple[bytes, bytes]]

    def __init__(self, index: int) -> None:
        self.index = index
        # The bytes of a delta's frame before its text.
        self.delta_open = (
            b"event: content_block_delta\ndata: "
            b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
            % (index, *self.delta)
        )

    def opening(self) -> bytes:
        return _event("content_block_start", index=self.index, content_block=self._empty())

    def closing(self) -> bytes:
        return _event("content_block_stop", index=self.index)

    @abstractmethod
    def _empty(self) -> Mapping[str, object]:
        """Return the block without its content."""


class _OpenText(_OpenBlock):
    delta = (b"text_delta", b"text")

    def _empty(self) -> Mapping[str, object]:
        return {"type": "text", "text": ""}


class _OpenThinking(_OpenBlock):
    delta = (b"thinking_delta", b"thinking")

    def _empty(self) -> Mapping[str, object]:
        return {"type": "thinking", "thinking": "", "signature": ""}

    def closing(self) -> bytes:
        delta = {"type": "signature_delta", "signature": SIGNATURE}
        return _event("content_block_delta", index=self.index, delta=delta) + super().closing()


class _OpenToolUse(_OpenBlock):
    delta = (b"input_json_delta", b"partial_json")

    def __init__(self, index: int, start: ToolCallStarted) -> None:
        super().__init__(index)
        self.start = start

    def _empty(self) -> Mapping[str, object]:
        id_ = tool_use_id(self.start.id)
        return {"type": "tool_use", "id": id_, "name": self.start.name, "input": {}}


class MessagesEncoder:
    """Encodes the events of one stream, which has one choice."""

    def __init__(self, identity: AnswerIdentity, request: GenerationRequest) -> None:
        self._identity = identity
        self._request = request
        self._open: _OpenBlock | None = None
        self._num_blocks = 0
        self._ending: Mapping[str, object] = UNFINISHED
        self._unsent: Started | None = None  # waits for what follows

    def feed(self, event: Event) -> bytes:
        start = b""
        if self._unsent is not None:
            start, self._unsent = self._start(self._unsent, event), None
        return start + self._encoded(event)

    def _encoded(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                start = b"" if isinstance(self._open, _OpenText) else self._begin(_OpenText)
                return start + self._delta(event.text)
            case ReasoningDelta():
                is_open = isinstance(self._open, _OpenThinking)
                return (b"" if is_open else self._begin(_OpenThinking)) + self._delta(event.text)
            case ToolCallDelta():
                return self._call_delta(event)
            case ToolCallStarted():
                return self._close() + self._opened(_OpenToolUse(self._num_blocks, event))
            case Started():
                self._unsent = event
                return b""
            case Finished():
                self._ending = ending(
                    event.reason,
                    event.cause,
                    self._request,
                    is_context_full=event.is_context_full,
                )
                return self._close()
            case Progress() | Arrived() | PromptScored() | FirstToken() | TokensGenerated():
                return b""
            case Completed():
                return self._complete(event.usage)
            case Failed():
                return named_frame("error", json_bytes(error_object(event.error)))
            case _:
                assert_never(event)

    def _start(self, started: Started, event: Event) -> bytes:
        """`event` follows."""
        known = event.usage if isinstance(event, Progress | Completed) else TokenCounts()
        usage = usage_object(TokenCounts(started.num_prompt_tokens, known.num_cached_tokens))
        unfinished = message(self._identity, [], usage, dict(UNFINISHED))
        return _event("message_start", message=unfinished) + PING

    def _begin(self, kind: type[_OpenText | _OpenThinking]) -> bytes:
        return self._close() + self._opened(kind(self._num_blocks))

    def _opened(self, block: _OpenBlock) -> bytes:
        self._open = block
        self._num_blocks += 1
        return block.opening()

    def _close(self) -> bytes:
        block, self._open = self._open, None
        return b"" if block is None else block.closing()

    def _call_delta(self, event: ToolCallDelta) -> bytes:
        block = self._open
        if not isinstance(block, _OpenToolUse) or block.start.index != event.index:
            raise ValueError("a delta of a tool call that is not the open block")
        return self._delta(event.text)

    def _delta(self, text: str) -> bytes:
        assert self._open is not None, "a delta outside of any block"
        return self._open.delta_open + json_text(text) + b"}}\n\n"

    def _complete(self, usage: TokenCounts) -> bytes:
        end = _event("message_delta", delta=self._ending, usage=usage_object(usage))
        return end + _event("message_stop")
