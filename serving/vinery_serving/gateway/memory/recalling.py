"""Reads the stored items that a request continues, and locks its conversation meanwhile."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import msgspec

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.keys.table import Caller, Storage
from vinery_accounts.stored import compactions, conversations, responses
from vinery_accounts.stored.rows import Item, NoPlace, NotStored, find_items
from vinery_serving.core import errors
from vinery_serving.core.memory import MemoryItem, Needs, Recalled
from vinery_serving.gateway.state.runtime import Runtime

ResultT = TypeVar("ResultT")
PREVIOUS, ITEMS = "previous_response_id", "items"


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
