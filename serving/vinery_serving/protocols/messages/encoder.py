"""The encoder of a streamed message.

The start of the message waits for the first token, with which the cached tokens are known; the last
event has the usage of the whole message.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import (
    Completed,
    Event,
    Finished,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenCounts,
    ToolCallDelta,
    ToolCallStarted,
)
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import GenerationRequest
from vinery_serving.protocols.common.encoding import json_bytes, json_text, named_frame
from vinery_serving.protocols.common.exchange import ItemEncoder, OpenItem
from vinery_serving.protocols.messages.answer import (
    SIGNATURE,
    AnswerBlock,
    AnswerText,
    AnswerThinking,
    AnswerToolUse,
    Ending,
    MessageDelta,
    MessageEvent,
    ending,
    message,
    tool_use_id,
    usage_object,
)
from vinery_serving.protocols.messages.errors import error_object


def _framed(event: MessageEvent) -> bytes:
    return named_frame(event.type, json_bytes(event))


PING = _framed(MessageEvent(type="ping"))


class _OpenBlock(OpenItem):
    # The type of a delta, and the name of its text.
    names: ClassVar[tuple[bytes, bytes]]

    def __init__(self, index: int) -> None:
        self.index = index
        self.delta_open = (
            b"event: content_block_delta\ndata: "
            b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
            % (index, *self.names)
        )

    def opening(self) -> Iterable[MessageEvent]:
        yield MessageEvent(
            type="content_block_start", index=self.index, content_block=self._empty()
        )

    def closing(self) -> Iterable[MessageEvent]:
        yield MessageEvent(type="content_block_stop", index=self.index)

    @abstractmethod
    def _empty(self) -> AnswerBlock: ...


class _OpenText(_OpenBlock):
    deltas = TextDelta
    names = (b"text_delta", b"text")

    def _empty(self) -> AnswerBlock:
        return AnswerText(text="")


class _OpenThinking(_OpenBlock):
    deltas = ReasoningDelta
    names = (b"thinking_delta", b"thinking")

    def _empty(self) -> AnswerBlock:
        return AnswerThinking(thinking="", signature="")

    def closing(self) -> Iterable[MessageEvent]:
        delta = MessageDelta(type="signature_delta", signature=SIGNATURE)
        yield MessageEvent(type="content_block_delta", index=self.index, delta=delta)
        yield from super().closing()


class _OpenToolUse(_OpenBlock):
    names = (b"input_json_delta", b"partial_json")

    def __init__(self, index: int, start: ToolCallStarted) -> None:
        super().__init__(index)
        self.start = start
        self._block = AnswerToolUse(id=tool_use_id(start.id), name=start.name, input={})

    def _empty(self) -> AnswerBlock:
        return self._block


class MessagesEncoder(ItemEncoder[_OpenBlock]):
    """Encodes the events of one stream, which has one choice."""

    def __init__(self, identity: AnswerIdentity, request: GenerationRequest) -> None:
        super().__init__()
        self._identity = identity
        self._request = request
        self._num_blocks = 0
        self._ending: Ending = ("end_turn", None)
        self._unsent: Started | None = None  # waits for what follows

    def _encode(self, event: Event) -> bytes:
        if self._unsent is None:
            return super()._encode(event)
        started, self._unsent = self._unsent, None
        known = event.usage if isinstance(event, Progress | Completed) else TokenCounts()
        usage = TokenCounts(started.num_prompt_tokens, known.num_cached_tokens)
        unfinished = message(self._identity, (), usage)
        start = _framed(MessageEvent(type="message_start", message=unfinished)) + PING
        return start + super()._encode(event)

    def _start(self, event: Started) -> bytes:
        self._unsent = event
        return b""

    def _new(self, event: TextDelta | ReasoningDelta | ToolCallStarted) -> _OpenBlock:
        index = self._num_blocks
        self._num_blocks += 1
        match event:
            case TextDelta():
                return _OpenText(index)
            case ReasoningDelta():
                return _OpenThinking(index)
            case ToolCallStarted():
                return _OpenToolUse(index, event)

    def _delta(self, item: _OpenBlock, event: TextDelta | ReasoningDelta | ToolCallDelta) -> bytes:
        return item.delta_open + json_text(event.text) + b"}}\n\n"

    def _close(self) -> bytes:
        block, self._open = self._open, None
        return b"" if block is None else self._frames(block.closing())

    def _frame(self, event: MessageEvent) -> bytes:
        return _framed(event)

    def _finish(self, event: Finished) -> bytes:
        self._ending = ending(
            event.reason, event.cause, self._request, is_context_full=event.is_context_full
        )
        return self._close()

    def _complete(self, event: Completed) -> bytes:
        stop_reason, stop_sequence = self._ending
        delta = MessageDelta(stop_reason=stop_reason, stop_sequence=stop_sequence)
        usage = usage_object(event.usage)
        end = MessageEvent(type="message_delta", delta=delta, usage=usage)
        return self._frames((end, MessageEvent(type="message_stop")))

    def _fail(self, error: ServingError) -> bytes:
        return named_frame("error", json_bytes(error_object(error)))
