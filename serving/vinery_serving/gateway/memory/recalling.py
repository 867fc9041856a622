"""Reads the stored items that a request continues, and locks its conversation meanwhile."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.keys.table import Caller, Storage
from vinery_accounts.stored import compactions, conversations, responses
from vinery_accounts.stored.rows import Item, NotStored, find_items
from vinery_serving.core.errors import (
    ConversationInUse,
    InvalidRequest,
    NotFound,
    ServingError,
    Unavailable,
)
from vinery_serving.core.memory import MemoryItem, Needs, Recalled
from vinery_serving.gateway.state.runtime import Runtime

# What reading and changing stored objects raises, for `error_of`.
RECALL_ERRORS: Final = (NotStored, *DATABASE_UNAVAILABLE, TimeoutError)


def storage_of(runtime: Runtime, caller: Caller) -> Storage:
    return runtime.keys.anonymous_storage if caller.key_id is None else caller.storage


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
    lock: str | None = None  # the holder of the lock of a conversation, which the request has

    @property
    def keeps(self) -> bool:
        return storage_of(self.runtime, self.caller).days > 0

    async def read(self, needs: Needs) -> Recalled:
        """Raises `ServingError`."""
        opened = {text: self.opened(text, path) for path, text in needs.compactions.items()}
        if needs == Needs(compactions=needs.compactions):
            return Recalled(opened=opened)
        try:
            if needs.conversation_id is not None and self.locks:
                await self._lock(needs.conversation_id)
            read = partial(_read, self.caller.project_id, needs, is_held=self.is_held)
            recalled = await self.runtime.recall(read)
        except RECALL_ERRORS as error:
            raise error_of(error) from None
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
            raise InvalidRequest(
                f"`{path}` is a compaction of another service or project, or its key is gone. Send "
                "the items that it stands for.",
                param=path,
            ) from None

    async def _lock(self, public_id: str) -> None:
        if not self.keeps:
            raise InvalidRequest(
                "`conversation` needs a project that stores responses: an owner sets its days of "
                "stored responses.",
                param="conversation",
            )
        project_id, holder = self.caller.project_id, self.request_id
        await self.runtime.recall(partial(conversations.lock, project_id, public_id, holder))
        self.lock = holder
        self.runtime.conversation_locks.add(holder)

    def release(self) -> None:
        if self.lock is not None:
            self.runtime.conversation_locks.discard(self.lock)
            self.runtime.recall_later(partial(conversations.unlock, self.lock))


def error_of(error: Exception) -> ServingError:
    """The error for the client."""
    match error:
        case conversations.ConversationLocked():
            return ConversationInUse()
        case responses.NotContinuable():
            return InvalidRequest(
                f"The response '{error.public_id[:128]}' {error.reason}.",
                param="previous_response_id",
            )
        case NotStored(what="Response"):
            return InvalidRequest(
                f"Previous response with id '{error.public_id[:128]}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        case NotStored():
            return NotFound(f"{error}")
    return Unavailable("Stored responses cannot be read just now. Try again.")


def _read(project_id: int | None, needs: Needs, *, is_held: bool) -> Recalled:
    """In a thread. Raises `NotStored`."""
    items: list[Item] = []
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
