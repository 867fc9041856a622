"""Stores answers before their last event leaves, so that the client's next request finds them."""

import asyncio
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
from django.db import Error

from vinery_accounts.stored.chats import ChatTexts, NewChat
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import Item, NotStored, stored_bytes
from vinery_serving.core.errors import LimitReached, Unavailable
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.memory import ToKeep
from vinery_serving.gateway.memory.recalling import StoredMemory, ask
from vinery_serving.gateway.state.keeper import NewAnswer
from vinery_serving.protocols.responses.memory import with_id

log = logging.getLogger(__name__)

# How long the end of an answer waits for the database.
_KEEP_S: Final = 5.0


async def check_room(memory: StoredMemory) -> None:
    """Raises `LimitReached` for a project that has stored as much as it may, and `Unavailable`."""
    project_id, most = memory.caller.project_id, memory.storage.max_bytes
    known = memory.runtime.keeper.num_bytes
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
    new = new_answer(memory, identity, to_keep, body)
    try:
        async with asyncio.timeout(_KEEP_S):
            await memory.runtime.keeper.keep(new)
    except (Error, NotStored, TimeoutError) as error:
        named = memory.request_id, type(error).__name__
        log.warning("an answer is not stored request_id=%s: %s", *named)
        if to_keep.needs.conversation_id is not None:
            raise Unavailable("The answer could not be added to the conversation.") from None
        return False
    return True


def new_answer(
    memory: StoredMemory, identity: AnswerIdentity, to_keep: ToKeep, body: bytes
) -> NewAnswer:
    """The rows of an answer, whose JSON this is."""
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


class _Response(msgspec.Struct):
    status: str
    output: list[msgspec.Raw]


class _Head(msgspec.Struct):
    id: str
    type: str


def parts_of(response: bytes) -> tuple[str, bytes, tuple[Item, ...]]:
    """The status of a response, the response without its output, and the items of its output."""
    members = msgspec.json.decode(response, type=dict[str, msgspec.Raw])
    known = msgspec.json.decode(response, type=_Response)
    heads = (msgspec.json.decode(raw, type=_Head) for raw in known.output)
    outputs = (
        Item(head.id, head.type, bytes(raw)) for head, raw in zip(heads, known.output, strict=True)
    )
    return known.status, msgspec.json.encode({**members, "output": []}), tuple(outputs)


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
