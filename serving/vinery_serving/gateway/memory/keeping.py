"""Stores answers before their last event leaves, so that the client's next request finds them."""

import asyncio
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
from django.db import Error, transaction

from vinery_accounts.stored import chats, responses
from vinery_accounts.stored.chats import ChatTexts, NewChat
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import Item, NotStored, stored_bytes
from vinery_serving.core.errors import LimitReached, Unavailable
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.memory import ToKeep
from vinery_serving.gateway.memory.recalling import StoredMemory, ask
from vinery_serving.protocols.responses.memory import with_id

log = logging.getLogger(__name__)

NewAnswer = NewResponse | NewChat
_KEEP_S: Final = 5.0  # how long the end of an answer waits for the database


async def check_room(memory: StoredMemory) -> None:
    """Raises `LimitReached` for a project that has stored as much as it may, and `Unavailable`.
    Reads nothing if there was room after the last answer was stored."""
    project_id, most = memory.caller.project_id, memory.storage.max_bytes
    known = memory.runtime.stored_bytes
    if not most or known.get(project_id, 0) < most:
        return
    known[project_id] = await ask(memory.runtime, partial(stored_bytes, project_id))
    if known[project_id] >= most:
        raise LimitReached(
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
            raise Unavailable("The answer could not be added to the conversation.") from None
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
