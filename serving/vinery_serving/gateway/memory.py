"""What requests take from stored responses and conversations, and what answers leave there.

A conversation is locked while its next answer is written. Answers are stored before their last
event leaves, so that the client's next request finds them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

import msgspec
from django.db import Error, transaction

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.keys.table import Caller, Storage
from vinery_accounts.stored import chats, compactions, conversations, responses
from vinery_accounts.stored.chats import ChatTexts, NewChat
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import Item, NoPlace, NotStored, find_items, stored_bytes
from vinery_serving.core import errors
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.memory import MemoryItem, Needs, Recalled, ToKeep
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.responses.exchange import with_id

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
NewAnswer = NewResponse | NewChat
PREVIOUS, ITEMS = "previous_response_id", "items"
_KEEP_S: Final = 5.0  # how long the end of an answer waits for the database


async def ask(
    runtime: Runtime, work: Callable[[], ResultT], *, param: str | None = None
) -> ResultT:
    """Read or change stored objects. `param`: the field, `PREVIOUS` or `ITEMS`, that may name what
    is not there. Raises `ServingError`."""
    try:
        return await runtime.recall(work)
    except (NotStored, *DATABASE_UNAVAILABLE, TimeoutError) as error:
        raise _error_of(error, param) from None


def _error_of(error: Exception, param: str | None) -> errors.ServingError:
    match error:
        case conversations.ConversationLocked():
            return errors.ConversationInUse()
        case responses.NotContinuable():
            text = f"The response '{error.public_id[:128]}' {error.reason}."
            return errors.InvalidRequest(
                text, param=PREVIOUS, code="previous_response_not_continuable"
            )
        case NotStored(what="Response", public_id=id_) if not id_.startswith("resp_"):
            text = f"'{id_[:128]}' is no id of a response, which begins with `resp_`."
            return errors.InvalidRequest(text, param=param or "response_id", code="invalid_value")
        case NotStored(what="Response") if param == PREVIOUS:
            text = f"Previous response with id '{error.public_id[:128]}' not found."
            return errors.InvalidRequest(text, param=PREVIOUS, code="previous_response_not_found")
        case NotStored(what="Conversation") if param == PREVIOUS:
            return errors.NotFound(str(error), param="conversation")
        case NotStored(what="Item") if param == ITEMS:
            return errors.InvalidRequest(str(error), param=ITEMS)
        case NoPlace():
            return errors.InvalidRequest("`after` names no object of this list.", param="after")
        case NotStored():
            return errors.NotFound(str(error))
    return errors.Unavailable("Stored objects cannot be read just now. Try again.")


@dataclass(slots=True)
class StoredMemory:
    """What one request may recall. `cover` claims memory for so many bytes; `locks` False: the
    request adds nothing to its conversation."""

    runtime: Runtime
    caller: Caller
    request_id: str
    cover: Callable[[int], None]
    locks: bool = True
    # What the request continues may have expired since the request was stored.
    is_held: bool = False
    compaction: bytes = b""  # of the whole conversation, for the answer
    has_lock: bool = False  # of a conversation

    @property
    def storage(self) -> Storage:
        is_anonymous = self.caller.key_id is None
        return self.runtime.keys.anonymous_storage if is_anonymous else self.caller.storage

    @property
    def keeps(self) -> bool:
        return self.storage.days > 0

    async def read(self, needs: Needs) -> Recalled:
        """Raises `ServingError`."""
        opened = {text: self.opened(text, path) for path, text in needs.compactions.items()}
        if needs == Needs(compactions=needs.compactions):
            return Recalled(opened=opened)
        if needs.conversation_id is not None and self.locks:
            await self._lock(needs.conversation_id)
        read = partial(_read, self.caller.project_id, needs, is_held=self.is_held)
        recalled = await ask(self.runtime, read, param=PREVIOUS)
        self.cover(sum(len(each.payload) for each in recalled.items))
        items = (*recalled.items, *recalled.referred.values())
        return replace(recalled, opened=opened | self.opened_of(items, "input"))

    def opened_of(self, items: Iterable[MemoryItem], path: str) -> dict[str, bytes]:
        """The contents of the compactions among these items. Raises `InvalidRequest`."""
        kind = compactions.KIND
        found = (msgspec.json.decode(each.payload) for each in items if each.kind == kind)
        texts = (each["encrypted_content"] for each in found)
        return {text: self.opened(text, path) for text in texts}

    def opened(self, sealed: str, path: str) -> bytes:
        try:
            return compactions.unseal(self.caller.project_id, sealed)
        except ValueError:
            raise errors.InvalidRequest(
                f"`{path}` is a compaction of another service or project, or its key is gone. Send "
                "the items that it stands for.",
                param=path,
            ) from None

    async def _lock(self, public_id: str) -> None:
        if not self.keeps:
            raise errors.InvalidRequest(
                "`conversation` needs a project that stores responses: an owner sets its days of "
                "stored responses.",
                param="conversation",
            )
        lock = partial(conversations.lock, self.caller.project_id, public_id, self.request_id)
        await ask(self.runtime, lock, param=PREVIOUS)
        self.has_lock = True
        self.runtime.conversation_locks.add(self.request_id)

    def release(self) -> None:
        if self.has_lock:
            self.runtime.conversation_locks.discard(self.request_id)
            self.runtime.recall_later(partial(conversations.unlock, self.request_id))


def _read(project_id: int | None, needs: Needs, *, is_held: bool) -> Recalled:
    """In a thread. Raises `NotStored`."""
    items: Iterable[Item] = ()
    if needs.previous_response_id is not None:
        items = responses.context(project_id, needs.previous_response_id, is_held=is_held)
    elif needs.conversation_id is not None:
        items = conversations.context(project_id, needs.conversation_id)
    referred = find_items(project_id, needs.item_ids) if needs.item_ids else {}
    return Recalled(
        tuple(map(_recalled, items)), {name: _recalled(each) for name, each in referred.items()}
    )


def _recalled(item: Item) -> MemoryItem:
    return MemoryItem(item.public_id, item.kind, item.payload)


# -- What answers leave


async def check_room(memory: StoredMemory) -> None:
    """Raises `LimitReached` for a project that has stored as much as it may, and `Unavailable`.
    Reads nothing if there was room after the last answer was stored."""
    project_id, most = memory.caller.project_id, memory.storage.max_bytes
    known = memory.runtime.stored_bytes
    if not most or known.get(project_id, 0) < most:
        return
    known[project_id] = await ask(memory.runtime, partial(stored_bytes, project_id))
    if known[project_id] >= most:
        raise errors.LimitReached(
            f"The project has stored {most // 2**20} MB of responses, and may store no more. "
            "Delete some, ask the administrator to allow more, or set `store` to false.",
            type_="insufficient_quota",
            code="insufficient_quota",
            headers={"x-should-retry": "false"},
        )


async def keep(
    memory: StoredMemory, identity: AnswerIdentity, to_keep: ToKeep, body: bytes
) -> bool:
    """Store an answer, whose whole body this is. Returns whether it is stored. Raises `Unavailable`
    if a conversation needs it."""
    runtime, new = memory.runtime, new_answer(memory, identity, to_keep, body)
    try:
        async with asyncio.timeout(_KEEP_S):
            num_bytes = await runtime.recall(partial(store, new), "keeper")
            runtime.stored_bytes[new.owner.project_id] = num_bytes
    except (Error, NotStored, TimeoutError) as error:
        runtime.num_not_stored += 1
        named = memory.request_id, type(error).__name__
        log.warning("an answer is not stored request_id=%s: %s", *named)
        if to_keep.needs.conversation_id is not None:
            raise errors.Unavailable("The answer could not be added to the conversation.") from None
        return False
    return True


def store(new: NewAnswer) -> int:
    """Store an answer in one transaction. Returns how many bytes its project has then. In a thread.
    Raises `NotStored` and `django.db.Error`."""
    with transaction.atomic():
        row = responses.keep(new) if isinstance(new, NewResponse) else chats.keep(new)
    return row.project_bytes


def new_answer(
    memory: StoredMemory, identity: AnswerIdentity, to_keep: ToKeep, body: bytes
) -> NewAnswer:
    id_ = identity.id("chatcmpl-" if to_keep.is_chat else "resp_")
    days = memory.storage.days if to_keep.is_answer_kept else 0
    now = datetime.fromtimestamp(identity.created_at, UTC)
    new = (memory.caller, id_, identity.model, memory.request_id, now, days)
    if to_keep.is_chat:
        return NewChat(*new, ChatTexts(body, _messages(to_keep, id_), dict(to_keep.metadata)))
    status, payload, outputs = parts_of(body)
    return NewResponse(
        *new,
        status=status,
        payload=payload,
        inputs=own_items(to_keep, identity.token),
        outputs=outputs,
        previous_id=to_keep.needs.previous_response_id,
        conversation_id=to_keep.needs.conversation_id,
    )


class _Head(msgspec.Struct):
    id: str
    type: str


def parts_of(response: bytes) -> tuple[str, bytes, tuple[Item, ...]]:
    """The status of a response, the response without its output, and the items of its output."""
    members = msgspec.json.decode(response, type=dict[str, msgspec.Raw])
    status: str = msgspec.json.decode(members["status"])
    parts = msgspec.json.decode(members["output"], type=list[msgspec.Raw])
    both = zip((msgspec.json.decode(part, type=_Head) for part in parts), parts, strict=True)
    outputs = tuple(Item(head.id, head.type, bytes(part)) for head, part in both)
    return status, msgspec.json.encode({**members, "output": []}), outputs


def own_items(to_keep: ToKeep, token: str) -> tuple[Item, ...]:
    """What the client sent, each item with its id."""
    items = (with_id(each, token, at) for at, each in enumerate(to_keep.items))
    return tuple(Item(each.id, each.kind, each.payload) for each in items)


def _messages(to_keep: ToKeep, id_: str) -> bytes:
    """The messages as lists show them, with ids."""
    parts = (
        b'{"id":%b,%b' % (msgspec.json.encode(f"{id_}-{at}"), each.payload[1:])
        for at, each in enumerate(to_keep.items)
    )
    return b"[%b]" % b",".join(parts)
