"""Served models and tokenizers, as clients see them."""

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType
from pydantic import Field

from vinery_serving.protocols.common.encoding import Answer, one_of

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
    task: Annotated[str, one_of("chat", "completion", "vision", "embeddings", "rerank")]
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
