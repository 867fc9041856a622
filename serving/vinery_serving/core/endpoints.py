"""The endpoints that run models. Settings import this file, so each command does."""

from enum import StrEnum
from typing import Final


class Endpoint(StrEnum):
    """The generation endpoints. The values stand in URLs and in usage records."""

    CHAT = "chat/completions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"


class PoolingEndpoint(StrEnum):
    """The endpoints that turn texts into vectors or scores; pooling is vLLM's word for them."""

    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SCORE = "score"


AnyEndpoint = Endpoint | PoolingEndpoint
ALL_ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (*Endpoint, *PoolingEndpoint)
