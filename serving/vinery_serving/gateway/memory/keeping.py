"""Stores answers before their last event leaves, so that the client's next request finds them."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
from django.db import Error

from vinery_accounts.keys.table import Caller
from vinery_accounts.stored.chats import ChatTexts, NewChat
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import Item, NotStored, Owner, stored_bytes
from vinery_serving.core.errors import LimitReached, Unavailable
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.memory import MemoryItem, ToKeep
from vinery_serving.gateway.memory.recalling import RECALL_ERRORS, error_of, storage_of
from vinery_serving.gateway.state.keeper import New
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.responses.memory import with_id

log = logging.getLogger(__name__)

# How long the end of an answer waits for the database.
_KEEP_S: Final = 5.0


async def check_room(runtime: Runtime, caller: Caller) -> None:
    """Raises `LimitReached` for a project that has stored as much as it may, and `Unavailable`."""
    project_id, most = caller.project_id, storage_of(runtime, caller).max_bytes
    known = runtime.keeper.num_bytes
    if not most or known.get(project_id, 0) < most:
        return
    try:
        known[project_id] = await runtime.recall(partial(stored_bytes, project_id))
    except RECALL_ERRORS as error:
        raise error_of(error) from None
    if known[project_id] >= most:
        raise LimitReached(
            f"The project has stored {most // 2**20} MB of responses, and may store no more. "
            "Delete some, ask the administrator to allow more, or set `store` to false.",
            type_="insufficient_quota",
            code="insufficient_quota",
            headers={"x-should-retry": "false"},
        )


async def keep(
    runtime: Runtime,
    caller: Caller,
    request_id: str,
    identity: AnswerIdentity,
    to_keep: ToKeep,
    body: bytes,
) -> bool:
    """Store an answer, whose whole body this is. Returns whether it is stored. Raises `Unavailable`
    if a conversation needs it."""
    days = storage_of(runtime, caller).days
    new = _new(caller, request_id, identity, to_keep, body, days)
    try:
        async with asyncio.timeout(_KEEP_S):
            await runtime.keeper.keep(new)
    except (Error, NotStored, TimeoutError) as error:
        log.warning("an answer is not stored request_id=%s: %s", request_id, type(error).__name__)
        if to_keep.needs.conversation_id is not None:
            raise Unavailable("The answer could not be added to the conversation.") from None
        return False
    return True


def _new(
    caller: Caller,
    request_id: str,
    identity: AnswerIdentity,
    to_keep: ToKeep,
    body: bytes,
    days: int,
) -> New:
    if to_keep.is_chat:
        owner, now = Owner.of(caller), datetime.fromtimestamp(identity.created_at, UTC)
        id_ = identity.id("chatcmpl-")
        texts = ChatTexts(body, _messages(to_keep.items, id_), dict(to_keep.metadata))
        return NewChat(owner, id_, identity.model, request_id, now, days, texts)
    return new_response(caller, request_id, identity, to_keep, body, days)


class _Response(msgspec.Struct):
    status: str
    output: list[msgspec.Raw]


class _Head(msgspec.Struct):
    id: str
    type: str


def new_response(
    caller: Caller,
    request_id: str,
    identity: AnswerIdentity,
    to_keep: ToKeep,
    body: bytes,
    days: int,
) -> NewResponse:
    """The rows of a response, whose JSON this is."""
    status, payload, outputs = parts_of(body)
    return NewResponse(
        owner=Owner.of(caller),
        public_id=identity.id("resp_"),
        status=status,
        model=identity.model,
        request_id=request_id,
        created_at=datetime.fromtimestamp(identity.created_at, UTC),
        days=days if to_keep.is_answer_kept else 0,
        payload=payload,
        inputs=own_items(to_keep, identity.token),
        outputs=outputs,
        previous_id=to_keep.needs.previous_response_id,
        conversation_id=to_keep.needs.conversation_id,
    )


def parts_of(response: bytes) -> tuple[str, bytes, tuple[Item, ...]]:
    """The status of a response, the response without its output, and the items of its output."""
    members = msgspec.json.decode(response, type=dict[str, msgspec.Raw])
    known = msgspec.json.decode(response, type=_Response)
    payload = msgspec.json.encode({**members, "output": []})
    return known.status, payload, tuple(map(_output, known.output))


def own_items(to_keep: ToKeep, token: str) -> tuple[Item, ...]:
    """What the client sent, each item with its id."""
    items = (with_id(each, token, at) for at, each in enumerate(to_keep.items))
    return tuple(Item(each.id, each.kind, each.payload) for each in items)


def _output(raw: msgspec.Raw) -> Item:
    head = msgspec.json.decode(raw, type=_Head)
    return Item(head.id, head.type, bytes(raw))


def _messages(items: Sequence[MemoryItem], id_: str) -> bytes:
    """The messages as lists show them, with ids."""
    parts = (
        b'{"id":%b,%b' % (msgspec.json.encode(f"{id_}-{at}"), each.payload[1:])
        for at, each in enumerate(items)
    )
    return b"[%b]" % b",".join(parts)
