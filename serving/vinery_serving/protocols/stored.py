"""Bodies about conversations and stored chats, and the stored objects as clients see them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from vinery_serving.core.memory import ToKeep
from vinery_serving.core.request import Unused
from vinery_serving.protocols.chat import ChatCompletion
from vinery_serving.protocols.common.body_fields import unknown_fields, unused_fields
from vinery_serving.protocols.common.encoding import Answer, one_of
from vinery_serving.protocols.common.generation import Metadata
from vinery_serving.protocols.common.parameters import parameter
from vinery_serving.protocols.common.reading import Wire, read_model, read_object, refusal
from vinery_serving.protocols.responses.input import CompactionTrigger, InputItem
from vinery_serving.protocols.responses.memory import memory_item

_METADATA: Final = "At most 16 pairs of texts, which replace those that are stored. Null: none."
_ITEMS: Final = "At most 20 items, as in `input` of a response."
_MAX_ITEMS: Final = 20


class ConversationBody(Wire):
    """A new conversation."""

    items: Annotated[list[InputItem], Field(fail_fast=True, max_length=_MAX_ITEMS)] | None = (
        parameter(_ITEMS)
    )
    metadata: Metadata | None = parameter(_METADATA)


class ConversationItemsBody(Wire):
    """Further items of a conversation."""

    items: Annotated[
        list[InputItem], Field(fail_fast=True, min_length=1, max_length=_MAX_ITEMS)
    ] = parameter(_ITEMS, is_required=True)


class StoredMetadataBody(Wire):
    """The metadata of a conversation or chat."""

    metadata: Metadata | None = parameter(_METADATA, is_required=True)


def _reader(model: type[Wire]) -> Callable[[bytes], tuple[ToKeep, Unused]]:
    def read(body: bytes) -> tuple[ToKeep, Unused]:
        members = read_object(body)
        wire = read_model(model, members)
        for at, each in enumerate(getattr(wire, "items", None) or ()):
            if isinstance(each, CompactionTrigger):
                raise refusal(f"items[{at}]", "is for `input` of a response: it is no item")
        items = tuple(map(memory_item, members.get("items") or ()))
        to_keep = ToKeep(items, metadata=members.get("metadata") or {})
        return to_keep, unused_fields(unknown_fields(wire, members))

    return read


# From a body to its items and metadata. All raise `InvalidRequest`.
READERS: Final[Mapping[str, Callable[[bytes], tuple[ToKeep, Unused]]]] = {
    "conversations": _reader(ConversationBody),
    "items": _reader(ConversationItemsBody),
    "metadata": _reader(StoredMetadataBody),
}


class StoredConversation(Answer, kw_only=True):
    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str]


class Deleted(Answer, kw_only=True):
    id: str
    object: Annotated[str, one_of("response", "conversation.deleted", "chat.completion.deleted")]
    deleted: Literal[True] = True


class StoredItem(Answer, kw_only=True):
    """An item of a response or conversation, with the members of its type."""

    id: str
    type: str


class StoredMessage(Answer, kw_only=True):
    """A message of a stored chat's request."""

    id: str
    role: str
    content: str | None
    content_parts: list[dict[str, Any]] | None


class StoredList(Answer, kw_only=True):
    """A page. The client asks for the next one with `after`."""

    object: Literal["list"]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ItemList(StoredList, kw_only=True):
    data: Sequence[StoredItem]


class MessageList(StoredList, kw_only=True):
    data: Sequence[StoredMessage]


class ChatList(StoredList, kw_only=True):
    data: Sequence[ChatCompletion]
