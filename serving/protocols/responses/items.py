"""The output items of a response: their finished form, and their growth in a stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, assert_never

from serving.core.events import FinishReason, ToolCallStarted
from serving.core.ids import AnswerIdentity
from serving.core.logprobs import Token
from serving.core.request import Tool, ToolCall
from serving.core.result import ChoiceResult, CustomCall, ReasoningItem, TextItem
from serving.core.result import Item as CoreItem
from serving.protocols.common.encoding import json_bytes
from serving.protocols.common.logprobs import content_logprobs
from serving.protocols.common.messages import pack_reasoning

Item = dict[str, object]
# The name of an event, and its members without `type` and `sequence_number`.
NamedEvent = tuple[str, dict[str, object]]
# The members that name the tool of a call, by the name that the model uses.
Names = Mapping[str, Mapping[str, str]]

IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"


def names_of(tools: Iterable[Tool]) -> Names:
    """Return the client's names of the tools in namespaces. Other tools have one name."""
    return {
        tool.name: {"name": tool.own_name, "namespace": tool.namespace}
        for tool in tools
        if tool.own_name is not None and tool.namespace is not None
    }


@dataclass(frozen=True, slots=True)
class ItemEncoder:
    """Encodes the items of one response. `packs_reasoning` adds `encrypted_content`."""

    identity: AnswerIdentity
    names: Names
    packs_reasoning: bool = False

    def items(self, choices: Iterable[ChoiceResult]) -> Sequence[Item]:
        """Return the items of a finished answer, choice after choice."""
        pairs = [pair for choice in choices for pair in _with_status(choice)]
        return [self.item(index, item, status) for index, (item, status) in enumerate(pairs)]

    def item(self, index: int, item: CoreItem, status: str, *, is_empty: bool = False) -> Item:
        """Return item `index` of the response. An empty item has no content parts yet."""
        match item:
            case TextItem(text=text, tokens=tokens):
                content = () if is_empty else (_text_part(text, tokens),)
                head = self._head("msg_", index, "message", status)
                return {**head, "role": "assistant", "content": content}
            case ReasoningItem(text=text):
                # Some clients read the summary, others the content, so both have the text.
                texts = () if is_empty else (text,)
                is_packed = self.packs_reasoning and not is_empty
                return {
                    **self._head("rs_", index, "reasoning", status),
                    "summary": [_summary_part(each) for each in texts],
                    "content": [_reasoning_part(each) for each in texts],
                    "encrypted_content": pack_reasoning(text) if is_packed else None,
                }
            case ToolCall(id=call_id, name=name, arguments=arguments):
                head = self._head("fc_", index, "function_call", status)
                return {**head, "call_id": call_id, **self.name(name), "arguments": arguments}
            case CustomCall(id=call_id, name=name, input=text):
                head = self._head("ctc_", index, "custom_tool_call", status)
                return {**head, "call_id": call_id, **self.name(name), "input": text}
            case _:
                assert_never(item)

    def name(self, name: str) -> Mapping[str, str]:
        """Return the members of a call that name its tool."""
        return self.names.get(name) or {"name": name}

    def _head(self, prefix: str, index: int, kind: str, status: str) -> Item:
        return {"id": self.identity.item_id(prefix, index), "type": kind, "status": status}


def _with_status(choice: ChoiceResult) -> Iterable[tuple[CoreItem, str]]:
    """The last item of a choice that reached its limit is incomplete."""
    last = len(choice.items) - 1
    is_cut = choice.finish_reason is FinishReason.LENGTH
    for index, item in enumerate(choice.items):
        yield item, INCOMPLETE if is_cut and index == last else COMPLETED


def _text_part(text: str, tokens: Sequence[Token]) -> Item:
    logprobs = content_logprobs(tokens)
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _reasoning_part(text: str) -> Item:
    return {"type": "reasoning_text", "text": text}


def _summary_part(text: str) -> Item:
    return {"type": "summary_text", "text": text}


class OpenItem:
    """The item that a stream is writing, with the events around its deltas."""

    prefix: ClassVar[str]
    delta_event: ClassVar[str]
    # The bytes of a delta's frame between its text and its sequence number.
    delta_close: ClassVar[bytes] = b',"sequence_number":'

    def __init__(self, encoder: ItemEncoder, index: int, **position: object) -> None:
        self._encoder = encoder
        self._index = index
        item_id = encoder.identity.item_id(self.prefix, index)
        self._item_position = {"item_id": item_id, "output_index": index}
        self._position = {**self._item_position, **position}
        members = json_bytes({"type": self.delta_event, **self._position})[:-1]
        # The bytes of a delta's frame before its text.
        self.delta_open = b'event: %b\ndata: %b,"delta":' % (self.delta_event.encode(), members)
        self.texts: list[str] = []

    def opening(self) -> Iterable[NamedEvent]:
        """Yield the events before the first delta."""
        item = self._encoder.item(self._index, self._core_item(), IN_PROGRESS, is_empty=True)
        yield "response.output_item.added", {"output_index": self._index, "item": item}
        yield from self._part_opening()

    def closing(self, status: str) -> Iterable[NamedEvent]:
        """Yield the events after the last delta."""
        yield from self._part_closing("".join(self.texts))
        done = {"output_index": self._index, "item": self.item(status)}
        yield "response.output_item.done", done

    def item(self, status: str) -> Item:
        """Return the item with all deltas so far."""
        return self._encoder.item(self._index, self._core_item(), status)

    @abstractmethod
    def _core_item(self) -> CoreItem: ...

    def _part_opening(self) -> Iterable[NamedEvent]:
        return ()

    @abstractmethod
    def _part_closing(self, text: str) -> Iterable[NamedEvent]: ...


class OpenMessage(OpenItem):
    """A message with its one text part."""

    prefix = "msg_"
    delta_event = "response.output_text.delta"
    delta_close = b',"logprobs":[],"sequence_number":'

    def __init__(self, encoder: ItemEncoder, index: int) -> None:
        super().__init__(encoder, index, content_index=0)
        self._tokens: list[Token] = []

    def add(self, text: str, tokens: Sequence[Token]) -> NamedEvent:
        """Add a delta with log-probabilities, and return its event."""
        self.texts.append(text)
        self._tokens += tokens
        logprobs = content_logprobs(tokens)
        return self.delta_event, {**self._position, "delta": text, "logprobs": logprobs}

    def _core_item(self) -> CoreItem:
        return TextItem("".join(self.texts), tuple(self._tokens))

    def _part_opening(self) -> Iterable[NamedEvent]:
        yield "response.content_part.added", {**self._position, "part": _text_part("", ())}

    def _part_closing(self, text: str) -> Iterable[NamedEvent]:
        logprobs = content_logprobs(self._tokens)
        part = _text_part(text, self._tokens)
        yield "response.output_text.done", {**self._position, "text": text, "logprobs": logprobs}
        yield "response.content_part.done", {**self._position, "part": part}


class OpenReasoning(OpenItem):
    """Reasoning. Its deltas are those of a summary, which every client reads. Its content
    follows in one part."""

    prefix = "rs_"
    delta_event = "response.reasoning_summary_text.delta"

    def __init__(self, encoder: ItemEncoder, index: int) -> None:
        super().__init__(encoder, index, summary_index=0)

    def _core_item(self) -> CoreItem:
        return ReasoningItem("".join(self.texts))

    def _part_opening(self) -> Iterable[NamedEvent]:
        part = _summary_part("")
        yield "response.reasoning_summary_part.added", {**self._position, "part": part}

    def _part_closing(self, text: str) -> Iterable[NamedEvent]:
        content = {**self._item_position, "content_index": 0}
        part = _summary_part(text)
        yield "response.reasoning_summary_text.done", {**self._position, "text": text}
        yield "response.reasoning_summary_part.done", {**self._position, "part": part}
        yield "response.content_part.added", {**content, "part": _reasoning_part("")}
        yield "response.reasoning_text.done", {**content, "text": text}
        yield "response.content_part.done", {**content, "part": _reasoning_part(text)}


class OpenCall(OpenItem):
    """A call of a function. `call_index` counts the calls, not the items."""

    prefix = "fc_"
    delta_event = "response.function_call_arguments.delta"

    def __init__(self, encoder: ItemEncoder, index: int, start: ToolCallStarted) -> None:
        super().__init__(encoder, index, call_id=start.id)  # `call_id` is from OVMS
        self.call_index = start.index
        self._start = start

    def _core_item(self) -> CoreItem:
        return ToolCall(self._start.id, self._start.name, "".join(self.texts))

    def _part_closing(self, text: str) -> Iterable[NamedEvent]:
        names = self._encoder.name(self._start.name)
        done = {**self._position, **names, "arguments": text}
        yield "response.function_call_arguments.done", done


class OpenCustomCall(OpenItem):
    """A call of a custom tool. `call_index` counts the calls, not the items."""

    prefix = "ctc_"
    delta_event = "response.custom_tool_call_input.delta"

    def __init__(self, encoder: ItemEncoder, index: int, start: ToolCallStarted) -> None:
        super().__init__(encoder, index)
        self.call_index = start.index
        self._start = start

    def _core_item(self) -> CoreItem:
        return CustomCall(self._start.id, self._start.name, "".join(self.texts))

    def _part_closing(self, text: str) -> Iterable[NamedEvent]:
        yield "response.custom_tool_call_input.done", {**self._position, "input": text}
