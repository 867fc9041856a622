"""What a served model does. Settings and tables import this file, so each command does."""

from enum import StrEnum
from typing import Final

from vinery_serving.core.endpoints import Endpoint, PoolingEndpoint


class Task(StrEnum):
    """The values stand in the database and in answers of the API."""

    CHAT = "chat"
    COMPLETION = "completion"  # it has no chat template
    VISION = "vision"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"

    @property
    def is_generation(self) -> bool:
        """Whether the model generates text. Other models turn each text into a vector or score."""
        return self in GENERATION_TASKS


GENERATION_TASKS: Final = frozenset({Task.CHAT, Task.COMPLETION, Task.VISION})
POOLING_TASKS: Final = frozenset({Task.EMBEDDINGS, Task.RERANK})
ALL_TASKS: Final = frozenset(Task)

# What models do that a pooling endpoint takes.
TASKS_OF_ENDPOINTS: Final = {
    PoolingEndpoint.EMBEDDINGS: frozenset({Task.EMBEDDINGS}),
    PoolingEndpoint.RERANK: frozenset({Task.RERANK}),
    PoolingEndpoint.SCORE: frozenset({Task.RERANK}),
}

_EXPLANATIONS: Final = {
    Task.CHAT: f"chats: use /{Endpoint.CHAT}",
    Task.COMPLETION: f"completes texts: use /{Endpoint.COMPLETIONS}",
    Task.VISION: f"chats: use /{Endpoint.CHAT}",
    Task.EMBEDDINGS: f"makes embeddings: use /{PoolingEndpoint.EMBEDDINGS}",
    Task.RERANK: f"ranks documents: use /{PoolingEndpoint.RERANK}",
}


def explanation(task: Task) -> str:
    """Return what a model of this task does, and where, after its name."""
    return _EXPLANATIONS[task]
