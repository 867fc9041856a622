"""What a request takes from stored responses and conversations, and what its answer leaves there.
Payloads are JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """An item of the client or of an answer. `id` is empty for an item that gets its id when it is
    stored; a reference to a stored item has no payload."""

    id: str
    kind: str
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Needs:
    """What must be read before the request can be prepared."""

    previous_response_id: str | None = None
    conversation_id: str | None = None
    item_ids: tuple[str, ...] = ()
    compactions: Mapping[str, str] = field(default_factory=dict)  # sealed, by their paths


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was read: the items before the request's own, the items that its input names, and the
    contents of all compactions by their sealed texts."""

    items: tuple[MemoryItem, ...] = ()
    referred: Mapping[str, MemoryItem] = field(default_factory=dict)
    opened: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Memory:
    """What the server remembers for the caller. `recalled` None: nothing has been read yet.
    `compaction` is the content of the one that replaces what the request itself has and recalls."""

    keeps: bool = False
    recalled: Recalled | None = None
    compaction: bytes = b""


NO_MEMORY = Memory()


@dataclass(frozen=True, slots=True)
class ToKeep:
    """What is stored with the answer: the client's own items or messages, in their order.
    `is_answer_kept` False: the items go into a conversation, and the answer cannot be found."""

    items: tuple[MemoryItem, ...]
    needs: Needs = Needs()
    is_answer_kept: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    is_chat: bool = False
