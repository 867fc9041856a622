"""Responses: the parsed request, the encodings of its answer, `input_tokens`, and stored items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Raw
from pydantic import TypeAdapter

from vinery_serving.core import events
from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import InvalidRequest, MissingParameter, ServingError
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.memory import NO_MEMORY, Memory, MemoryItem, Needs, Recalled, ToKeep
from vinery_serving.core.request import Conversation, Endpoint, GenerationRequest, ToolCall
from vinery_serving.core.result import Item as CoreItem
from vinery_serving.core.result import ReasoningItem, Result, TextItem
from vinery_serving.protocols.common import encoding
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.encoding import content_logprobs
from vinery_serving.protocols.common.messages import PlainMessage
from vinery_serving.protocols.common.reading import refusal
from vinery_serving.protocols.responses import objects as forms
from vinery_serving.protocols.responses.body import ResponsesBody, echo
from vinery_serving.protocols.responses.input import (
    BuiltInOutput,
    CallOutput,
    CompactionItem,
    InputItem,
    ItemReference,
    ReplayedCall,
    Summary,
)


@dataclass(slots=True)
class _OpenItem(encoding.OpenItem):
    """The item that the stream is writing. `position` holds the members of all events,
    `delta_close` the bytes of a delta's frame between text and sequence number."""

    delta_close: bytes
    index: int
    position: forms.Members
    texts: list[str] = field(default_factory=list)
    tokens: list[events.Token] = field(default_factory=list)

    def core(self) -> CoreItem:
        text, begun = "".join(self.texts), self.begun_by
        match begun:
            case events.TextDelta():
                return TextItem(text, tuple(self.tokens))
            case events.ReasoningDelta():
                return ReasoningItem(text)
            case events.ToolCallStarted():
                return ToolCall(begun.id, begun.name, text, begun.is_custom)

    def event(self, name: str, /, **members: Any) -> forms.ResponseEvent:
        return forms.ResponseEvent(type=f"response.{name}", **self.position, **members)

    def opening(self) -> Iterable[forms.ResponseEvent]:
        match self.begun_by:
            case events.TextDelta():
                yield self.event("content_part.added", part=forms.text_part(""))
            case events.ReasoningDelta():
                yield self.event("reasoning_summary_part.added", part=forms.SummaryText(text=""))

    def closing(self, item: forms.Item) -> Iterable[forms.ResponseEvent]:
        """Yield the events after the last delta of `item`."""
        text = "".join(self.texts)
        match item:
            case forms.OutputMessage(content=[part]):
                yield self.event("output_text.done", text=text, logprobs=part.logprobs)
                yield self.event("content_part.done", part=part)
            case forms.OutputReasoning():
                yield self.event("reasoning_summary_text.done", text=text)
                yield self.event("reasoning_summary_part.done", part=forms.SummaryText(text=text))
                self.position = {"item_id": item.id, "output_index": self.index, "content_index": 0}
                yield self.event("content_part.added", part=forms.ThoughtText(text=""))
                yield self.event("reasoning_text.done", text=text)
                yield self.event("content_part.done", part=forms.ThoughtText(text=text))
            case forms.OutputCall(name=name, namespace=space):
                end = "function_call_arguments.done"
                yield self.event(end, name=name, namespace=space, arguments=text)
            case forms.OutputCustomCall():
                yield self.event("custom_tool_call_input.done", input=text)
        yield forms.ResponseEvent(
            type="response.output_item.done", output_index=self.index, item=item
        )


class ResponsesEncoder(encoding.ItemEncoder[_OpenItem]):
    def __init__(self, objects: forms.ResponseObjects) -> None:
        super().__init__()
        self._objects = objects
        self._sequence_number = 0
        self._items: list[forms.Item] = []
        self._cuts: list[forms.Cause] = []
        self._is_in_progress = True

    def _encode(self, event: events.Event) -> bytes:
        if not self._is_in_progress and isinstance(event, events.OfChoice | events.Compacted):
            return self._progress() + self._encode(event)
        if not isinstance(event, events.Compacted):
            return super()._encode(event)
        item = self._objects.compaction(event.content)
        if not event.content:
            kind = "response.compaction.compacting"
            return self._frame(forms.ResponseEvent(type=kind, item_id=item.id, output_index=0))
        self._items.append(item)
        kinds = (f"response.output_item.{name}" for name in ("added", "done"))
        return self._frames(
            forms.ResponseEvent(type=kind, output_index=0, item=item) for kind in kinds
        )

    def _start(self, event: events.Started) -> bytes:
        self._objects = self._objects.with_sampling(event.sampling)
        if self._objects.echo["background"]:
            queued = self._objects.response(forms.QUEUED)
            states = (self._state(f"response.{name}", queued) for name in ("created", "queued"))
            return b"".join(states) + self._progress()
        created = self._state("response.created", self._objects.response(forms.IN_PROGRESS))
        self._is_in_progress = False
        return created if self._objects.dialect.shows_first_token else created + self._progress()

    def _progress(self) -> bytes:
        self._is_in_progress = True
        return self._state("response.in_progress", self._objects.response(forms.IN_PROGRESS))

    def _begin(self, event: encoding.Begin) -> bytes:
        index, close = len(self._items), b',"sequence_number":'
        opened = self._open = _OpenItem(event, b"", close, index, {})
        item = self._objects.item(index, opened.core(), forms.IN_PROGRESS, is_empty=True)
        place: dict[str, Any] = {}
        match item:
            case forms.OutputMessage():
                # The deltas of a message without log-probabilities.
                name, place = "output_text", {"content_index": 0}
                opened.delta_close = b',"logprobs":[]' + close
            case forms.OutputReasoning():  # in a summary, which every client reads
                name, place = "reasoning_summary_text", {"summary_index": 0}
            case forms.OutputCall():
                # `call_id` is from OVMS.
                name, place = "function_call_arguments", {"call_id": item.call_id}
            case forms.OutputCustomCall():
                name = "custom_tool_call_input"
        opened.position = {"item_id": item.id, "output_index": index, **place}
        kind = f"response.{name}.delta"
        members = encoding.json_bytes({"type": kind, **opened.position})[:-1]
        opened.delta_open = b'event: %b\ndata: %b,"delta":' % (kind.encode(), members)
        added = forms.ResponseEvent(
            type="response.output_item.added", output_index=index, item=item
        )
        return self._frame(added) + self._frames(opened.opening())

    def _delta(self, item: _OpenItem, event: encoding.More) -> bytes:
        item.texts.append(event.text)
        if isinstance(event, events.TextDelta) and event.tokens:
            item.tokens += event.tokens
            logprobs = content_logprobs(event.tokens)
            return self._frame(item.event("output_text.delta", delta=event.text, logprobs=logprobs))
        text, number = encoding.json_text(event.text), self._sequence_number
        self._sequence_number += 1
        return b"%b%b%b%d}\n\n" % (item.delta_open, text, item.delta_close, number)

    def _close(self, status: str = forms.COMPLETED) -> bytes:
        opened, self._open = self._open, None
        if opened is None:
            return b""
        item = self._objects.item(opened.index, opened.core(), status)
        self._items.append(item)
        return self._frames(opened.closing(item))

    def _finish(self, event: events.Finished) -> bytes:
        if event.reason is not events.FinishReason.LENGTH:
            return self._close()
        self._cuts.append(event.cause)
        return self._close(forms.INCOMPLETE)

    def _complete(self, event: events.Completed) -> bytes:
        response = self._objects.finished(self._items, event.usage, event.at, cuts=self._cuts)
        response.store &= event.is_kept
        return self._state(f"response.{response.status}", response) + encoding.DONE

    def _fail(self, error: ServingError) -> bytes:
        # Clients ignore events before the one that creates the response.
        start = self._start(events.Started()) if self._sequence_number == 0 else b""
        flat = forms.ResponseEvent(
            type="error", code=error.code, message=error.message, param=error.param
        )
        items, opened = self._items, self._open
        if opened is not None:
            items = [*items, self._objects.item(opened.index, opened.core(), forms.INCOMPLETE)]
        response = self._objects.failed(items, error)
        return start + self._frame(flat) + self._state("response.failed", response) + encoding.DONE

    def _state(self, name: str, response: forms.Response) -> bytes:
        return self._frame(forms.ResponseEvent(type=name, response=response))

    def _frames(self, several: Iterable[forms.ResponseEvent]) -> bytes:
        return b"".join(map(self._frame, several))

    def _frame(self, event: forms.ResponseEvent) -> bytes:
        event.sequence_number = self._sequence_number
        self._sequence_number += 1
        return encoding.named_frame(event.type, encoding.json_bytes(event))


@dataclass(frozen=True, slots=True)
class Unrecalled:
    """A valid request that cannot be prepared before what it needs has been read."""

    model: str | None
    is_streamed: bool
    needs: Needs


def parse(
    body: bytes,
    dialect: Dialect,
    *,
    fingerprint: str | None = None,
    memory: Memory = NO_MEMORY,
    is_compact: bool = False,
) -> ResponsesExchange | Unrecalled:
    """Read the body of a Responses request, or that of `responses/compact`, whose `input` may be
    absent beside a stored conversation. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.RESPONSES, ResponsesBody, body)
    wire, is_triggered = wire.without_trigger()
    if wire.input is None and not (is_compact and wire.needs()):
        raise MissingParameter("`input` is required.", param="input")
    wire.refuse_contradictions()
    if (needs := wire.needs()) is not None and memory.recalled is None:
        return Unrecalled(wire.model, bool(wire.stream), needs)
    wire, num_recalled = _recalled(wire, memory)
    compact_above = None if memory.compaction else wire.compact_threshold
    if is_compact or is_triggered:
        compact_above = 0
    conversation = wire.prompt(num_recalled)
    # An id that the client chose may be in use, and can be guessed.
    is_kept = memory.keeps and wire.keeps(dialect) and wire.request_id is None and not is_compact
    request = wire.request(
        Endpoint.RESPONSES,
        conversation,
        dialect,
        unused=unused,
        grammar=wire.grammar(dialect),
        is_kept=is_kept,
    )
    wire.refuse_background(is_kept=is_kept)
    handling = replace(request.handling, is_background=wire.background is True)
    request = replace(request, handling=handling, compact_above=compact_above)
    if compact_above is not None and (request.n > 1 or request.num_candidates or request.beams):
        raise refusal("context_management", "is for one answer: leave out `n` and `best_of`")
    if is_compact and wire.stream:
        raise refusal("stream", "must be false: a compaction is one object")
    has_items = is_kept or (wire.conversation is not None and not is_compact)
    return ResponsesExchange(
        request,
        echo(wire, conversation.tools, is_kept=is_kept),
        forms.names_of(conversation.tools),
        packs_reasoning="reasoning.encrypted_content" in (wire.include or ()),
        is_obfuscated=wire.is_obfuscated,
        to_keep=ToKeep(memory_items(body), needs or Needs(), is_kept) if has_items else None,
        user_items=() if compact_above is None else user_items(body, memory.recalled or Recalled()),
        is_compact=is_compact,
    )


def _recalled(wire: ResponsesBody, memory: Memory) -> tuple[ResponsesBody, int]:
    """Return the body with all items of the prompt, and how many of them were before."""
    own = wire.input or ()
    if memory.recalled is None and not memory.compaction:
        return wire, 0
    items = joined(own, memory.recalled or Recalled(), memory.compaction)
    changed = {"input": items, "mm_hashes": None if memory.compaction else wire.mm_hashes}
    return wire.model_copy(update=changed), len(items) - len(own)


@dataclass(frozen=True, slots=True)
class ResponsesExchange:
    """A Responses request, with the values that the answer needs: `echo` holds the repeated
    members, `names` the names of tools in namespaces, `user_items` the messages of the user that
    stay when the conversation is summarized. `is_compact`: the answer has these beside the
    compaction, and is no response."""

    keep_alive: ClassVar[bytes] = encoding.KEEP_ALIVE

    request: GenerationRequest
    echo: forms.Members
    names: forms.Names
    packs_reasoning: bool = False
    is_obfuscated: bool = False
    to_keep: ToKeep | None = None
    user_items: tuple[MemoryItem, ...] = ()
    last_words: str = ""  # of a conversation that is summarized
    is_compact: bool = False

    def keeping(self, num_tokens: int) -> ResponsesExchange:
        """Return the exchange with the last message of the user, and as many before as have about
        so many tokens, of three bytes each."""
        sizes = accumulate(len(each.payload) for each in reversed(self.user_items))
        num = max(1, sum(size <= 3 * num_tokens for size in sizes))
        prompt = self.request.prompt
        messages = prompt.messages if isinstance(prompt, Conversation) else ()
        said = "\n".join([part.text for each in messages for part in each.texts])
        return replace(self, user_items=self.user_items[-num:], last_words=said[-3 * num_tokens :])

    def compaction(self, summary: str) -> bytes:
        """Return the content of a compaction of the whole conversation. Small models write nothing
        after some conversations: then the last words stand for the summary."""
        summary = summary.strip() or f"There is none. The last words were:\n{self.last_words}"
        kept = None if self.is_compact else [Raw(each.payload) for each in self.user_items]
        return encoding.json_bytes({"summary": summary, "kept": kept})

    def encoder(self, identity: AnswerIdentity) -> encoding.Encoder:
        encoder = ResponsesEncoder(self._objects(identity))
        return encoding.Obfuscated(encoder, identity) if self.is_obfuscated else encoder

    def body(self, identity: AnswerIdentity, result: Result) -> bytes:
        choices = result.choices
        cuts = [each.cause for each in choices if each.finish_reason is events.FinishReason.LENGTH]
        objects = self._objects(identity).with_sampling(result.sampling)
        items = objects.items(choices, result.compaction)
        response = objects.finished(items, result.usage, result.completed_at, cuts=cuts)
        response.store &= result.is_kept
        if not self.is_compact:
            return encoding.json_bytes(response)
        kept = [with_id(each, identity.token, at) for at, each in enumerate(self.user_items)]
        compacted = forms.CompactedResponse(
            id=response.id,
            created_at=response.created_at,
            output=[*(Raw(each.payload) for each in kept), *items],
            usage=response.usage,
        )
        return encoding.json_bytes(compacted)

    def queued(self, identity: AnswerIdentity) -> bytes:
        objects = self._objects(identity).with_sampling(None)
        return encoding.json_bytes(objects.response(forms.QUEUED))

    def _objects(self, identity: AnswerIdentity) -> forms.ResponseObjects:
        dialect = self.request.dialect
        return forms.ResponseObjects(identity, self.echo, self.names, dialect, self.packs_reasoning)


def parse_count(
    body: bytes, dialect: Dialect, memory: Memory = NO_MEMORY
) -> GenerationRequest | Unrecalled:
    """Read the body of `POST responses/input_tokens`: a Responses request whose `input` may be
    absent beside `instructions`. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.RESPONSES, ResponsesBody, body)
    wire, _ = wire.without_trigger()
    if wire.input is None and not wire.instructions:
        raise MissingParameter("`input` is required.", param="input")
    needs = wire.needs()
    if needs is not None and memory.recalled is None:
        return Unrecalled(wire.model, False, needs)
    wire, num_recalled = _recalled(wire, memory)
    return wire.request(Endpoint.RESPONSES, wire.prompt(num_recalled), dialect, unused=unused)


def count_body(num_tokens: int) -> bytes:
    return encoding.json_bytes(forms.InputTokens(input_tokens=num_tokens))


# -- Stored items

_ITEM: Final[TypeAdapter[InputItem]] = TypeAdapter(InputItem)
# The prefix of an item's id, by the type of the item.
_PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "compaction": "cmp_",
}


class _Input(msgspec.Struct):
    input: Any = None


def memory_items(body: bytes) -> tuple[MemoryItem, ...]:
    """Return the items of a valid body as they are stored and shown: without ids, with the members
    that clients require. A trigger is not stored."""
    given = msgspec.json.decode(body, type=_Input).input
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given or ()
    return tuple(memory_item(x) for x in items if x.get("type") != "compaction_trigger")


def memory_item(sent: Mapping[str, Any]) -> MemoryItem:
    kind = sent.get("type") or ("message" if "role" in sent else "item_reference")
    if kind == "item_reference":
        return MemoryItem(str(sent["id"]), kind)
    item = {name: value for name, value in sent.items() if name != "id"}
    item["type"] = kind
    if kind not in ("reasoning", "compaction"):
        item["status"] = item.get("status") or "completed"
    if kind == "message":
        content = item.get("content")
        if not isinstance(content, list):
            kind_of_text = "output_text" if item["role"] == "assistant" else "input_text"
            content = [{"type": kind_of_text, "text": content or ""}]
        item["content"] = list(map(_complete, content))
    return MemoryItem("", kind, msgspec.json.encode(item))


def _complete(part: Any) -> Any:
    if not isinstance(part, dict):
        return {"type": "input_text", "text": str(part)}
    match part.get("type"):
        case "output_text":
            return {"annotations": [], "logprobs": [], **part}
        case "input_image":
            return {"detail": "auto", **part}
    return part


def with_id(item: MemoryItem, token: str, index: int) -> MemoryItem:
    """Give a new item its id, which its payload names first."""
    if not item.payload or item.id:
        return item
    new = f"{_PREFIXES.get(item.kind, 'item_')}{token}i{index:02x}"
    return MemoryItem(new, item.kind, b'{"id":%b,%b' % (msgspec.json.encode(new), item.payload[1:]))


def joined(
    own: Sequence[InputItem], recalled: Recalled, compaction: bytes = b""
) -> list[InputItem | Summary]:
    """Return the recalled items, and then the request's own with what they refer to, or what a
    compaction among them has left, or `compaction` of all. Raises `InvalidRequest` for calls
    without outputs, and outputs without calls."""
    items: list[InputItem | Summary] = []
    for at, each in enumerate((*map(_read, recalled.items), *own), -len(recalled.items)):
        item = _referred(each, at, recalled) if isinstance(each, ItemReference) else each
        if isinstance(item, CompactionItem):
            _unfold(recalled.opened[item.encrypted_content], items)
        else:
            items.append(item)
    if compaction:
        _unfold(compaction, items)
    _check_calls(items)
    return items


def _read(item: MemoryItem) -> InputItem:
    return _ITEM.validate_python(msgspec.json.decode(item.payload))


class Compaction(msgspec.Struct):
    """The content of a compaction item. `kept` are messages of the user that the summary does not
    replace; None: they stand beside the item, which replaces nothing."""

    summary: str
    kept: list[dict[str, Any]] | None = None


def _unfold(compaction: bytes, items: list[InputItem | Summary]) -> None:
    """Replace the items before a compaction: instructions stay."""
    made = msgspec.json.decode(compaction, type=Compaction)
    if made.kept is not None:
        items[:] = [x for x in items if isinstance(x, PlainMessage) and x.role != "user"]
    items += [Summary(made.summary), *map(_ITEM.validate_python, made.kept or ())]


def user_items(body: bytes, recalled: Recalled) -> tuple[MemoryItem, ...]:
    """Return the messages of the user in the prompt of a valid body, without ids."""
    found: list[MemoryItem] = []
    for each in (*recalled.items, *memory_items(body)):
        item = msgspec.json.decode(recalled.referred.get(each.id, each).payload)
        if item["type"] == "compaction":
            made = msgspec.json.decode(recalled.opened[item["encrypted_content"]], type=Compaction)
            found = found if made.kept is None else list(map(memory_item, made.kept))
        elif item.get("role") == "user":
            found.append(memory_item(item))
    return tuple(found)


def _referred(reference: ItemReference, at: int, recalled: Recalled) -> InputItem:
    found = recalled.referred.get(reference.id)
    if found is None:
        raise InvalidRequest(
            f"Item with id '{reference.id[:128]}' not found. Items are not persisted when `store` "
            "is set to false. Try again with `store` set to true, or remove this item from your "
            "input.",
            param=f"input[{at}].id",
        )
    return _read(found)


def _check_calls(items: Sequence[InputItem | Summary]) -> None:
    calls = [each.known_id for each in items if isinstance(each, ReplayedCall)]
    called, answered = set(calls), dict[str, None]()
    for each in items:
        match each:
            case CallOutput(call_id=id_) | BuiltInOutput(known_id=id_):
                answered[id_] = None
    for id_ in answered:
        if id_ not in called:
            raise InvalidRequest(
                f"No tool call found for function call output with call_id {id_[:128]}.",
                param="input",
            )
    for id_ in calls:
        if id_ not in answered:
            raise InvalidRequest(
                f"No tool output found for function call {id_[:128]}.", param="input"
            )
