"""Bodies about conversations and stored chats; stored objects and models, as clients see them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, UnsetType
from pydantic import Field

from vinery_serving.core.memory import ToKeep
from vinery_serving.core.request import Unused
from vinery_serving.core.tasks import Task
from vinery_serving.protocols.chat import ChatCompletion
from vinery_serving.protocols.common.body_fields import unknown_fields, unused_fields
from vinery_serving.protocols.common.encoding import Answer, one_of
from vinery_serving.protocols.common.generation import Metadata
from vinery_serving.protocols.common.reading import (
    Wire,
    parameter,
    read_model,
    read_object,
    refusal,
)
from vinery_serving.protocols.responses.exchange import memory_item
from vinery_serving.protocols.responses.input import CompactionTrigger, InputItem

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


# -- Models and tokenizers

_CONTEXT = Field(description="Prompt and answer, in tokens.")


class ModelCapabilities(Answer, kw_only=True):
    """The capabilities of a model, with Mistral's names."""

    completion: bool
    completion_chat: bool
    completion_fim: bool
    function_calling: bool
    reasoning: bool
    structured_outputs: bool
    vision: bool
    audio: bool


class ModelArchitecture(Answer, kw_only=True):
    """The inputs and outputs of a model, with OpenRouter's names."""

    modality: str
    input_modalities: list[str]
    output_modalities: list[str]


class ModelProvider(Answer, kw_only=True):
    """The limits of a model, with OpenRouter's names."""

    context_length: int | None
    max_completion_tokens: int | None
    is_moderated: bool


class Model(Answer, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: Annotated[int, Field(description="Seconds since 1970.")]
    owned_by: str = "vinery"
    state: Annotated[str, one_of("loaded", "loading", "failed", "not-loaded")]
    task: Annotated[str, one_of(*Task)]
    max_model_len: Annotated[int | None, _CONTEXT]
    context_length: Annotated[int | None, _CONTEXT]
    max_context_length: Annotated[int | None, _CONTEXT]
    architecture: ModelArchitecture
    top_provider: ModelProvider
    capabilities: Annotated[
        ModelCapabilities | None, Field(description="Null: not loaded, or no text generation.")
    ]
    supported_parameters: list[str] | None
    alias_of: (
        Annotated[list[str], Field(description="Of an alias: the models behind it.")] | UnsetType
    ) = UNSET


class ModelList(Answer, kw_only=True):
    """All models, or the models that can answer now."""

    object: Literal["list"] = "list"
    data: list[Model]


class AddedToken(Answer, kw_only=True):
    """A token that was added to a vocabulary. The model's files may have fewer members."""

    content: str | UnsetType = UNSET
    single_word: bool | UnsetType = UNSET
    lstrip: bool | UnsetType = UNSET
    rstrip: bool | UnsetType = UNSET
    normalized: bool | UnsetType = UNSET
    special: bool | UnsetType = UNSET


class TokenizerInfo(Answer, kw_only=True):
    """A tokenizer, with the names of Hugging Face's files. Null: the model's files do not have
    the value."""

    bos_token: str | None
    eos_token: str | None
    unk_token: str | None
    sep_token: str | None
    pad_token: str | None
    cls_token: str | None
    tokenizer_class: str | None
    added_tokens_decoder: Annotated[dict[str, AddedToken], Field(description="By id.")]
    model_max_length: Annotated[int | None, Field(description="The model's context, in tokens.")]
    chat_template: str | None


class Version(Answer, kw_only=True):
    version: str
