"""The answers about models, tokenizers and the server."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, RootModel

from serving.protocols.openapi.answers.base import ABSENT, Answer, Count


class Model(Answer):
    """A served model, loaded or not."""

    id: str
    object: Literal["model"]
    created: int = Field(description="Seconds since 1970.")
    owned_by: str


class ModelList(Answer):
    """All served models."""

    object: Literal["list"]
    data: list[Model]


class Version(Answer):
    """The server's version."""

    version: str


class CountedTokens(Answer):
    """The answer to a `prompt` or to `messages`."""

    count: Count
    max_model_len: int | None = Field(description="The model's context, in tokens.")
    tokens: list[int]
    token_strs: list[str] | None


class Tokens(Answer):
    """The answer to a `text`, or to several."""

    tokens: list[int] | list[list[int]]


class Tokenized(RootModel[CountedTokens | Tokens]):
    """Tokens, in the form of the system whose body the client sent."""


class Detokenized(Answer):
    """The text of some tokens."""

    prompt: str


class AddedToken(Answer):
    """A token that was added to a vocabulary."""

    model_config = ConfigDict(extra="allow")

    content: str = ABSENT
    special: bool = ABSENT


class TokenizerInfo(Answer):
    """A tokenizer, with the names of Hugging Face's files. Null: the model's files do not
    have the value."""

    tokenizer_class: str | None
    bos_token: str | None
    eos_token: str | None
    unk_token: str | None
    sep_token: str | None
    pad_token: str | None
    cls_token: str | None
    added_tokens_decoder: dict[str, AddedToken] = Field(description="By id.")
    model_max_length: int | None = Field(description="The model's context, in tokens.")
    chat_template: str | None


class InputTokens(Answer):
    """The number of tokens in the prompt of a request."""

    object: Literal["response.input_tokens"]
    input_tokens: Count
