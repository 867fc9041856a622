"""What models there are, and what their tokenizers say."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, RootModel

from serving.protocols.openapi.answers.base import Answer, Count


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
    """Tokens, in the shape of the system whose body was sent."""


class Detokenized(Answer):
    """The text of some tokens."""

    prompt: str


class InputTokens(Answer):
    """How long the prompt of a request would be."""

    object: Literal["response.input_tokens"]
    input_tokens: Count
