"""The endpoints that run models, what a served model does, and the names of output formats: how
models write reasoning and tool calls. Settings and tables import this file, so each command does.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Endpoint(StrEnum):
    """The values stand in URLs, in grants of keys and in usage records."""

    CHAT = "chat/completions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SCORE = "score"


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

# The tasks of each endpoint, of which a model must have one.
TASKS_OF_ENDPOINTS: Final[Mapping[str, frozenset[Task]]] = {
    Endpoint.CHAT: GENERATION_TASKS,
    Endpoint.COMPLETIONS: GENERATION_TASKS,
    Endpoint.RESPONSES: GENERATION_TASKS,
    Endpoint.MESSAGES: GENERATION_TASKS,
    Endpoint.EMBEDDINGS: frozenset({Task.EMBEDDINGS}),
    Endpoint.RERANK: frozenset({Task.RERANK}),
    Endpoint.SCORE: frozenset({Task.RERANK}),
}
GENERATION_ENDPOINTS: Final = tuple(
    each for each in Endpoint if TASKS_OF_ENDPOINTS[each] is GENERATION_TASKS
)
COMPACT: Final = f"{Endpoint.RESPONSES}/compact"  # recorded and permitted as responses
# Endpoints that turn texts into vectors or scores: "pooling" is vLLM's word.
POOLING_ENDPOINTS: Final = tuple(each for each in Endpoint if each not in GENERATION_ENDPOINTS)

_EXPLANATIONS: Final = {
    Task.CHAT: f"chats: use /{Endpoint.CHAT}",
    Task.COMPLETION: f"completes texts: use /{Endpoint.COMPLETIONS}",
    Task.VISION: f"chats: use /{Endpoint.CHAT}",
    Task.EMBEDDINGS: f"makes embeddings: use /{Endpoint.EMBEDDINGS}",
    Task.RERANK: f"ranks documents: use /{Endpoint.RERANK}",
}


def explanation(task: Task) -> str:
    """Return the words after a model's name: its use, and the endpoint."""
    return _EXPLANATIONS[task]


# -- Output formats. A file in `grammars/families` has the family of each name in `CALL_FORMATS`.

PLAIN: Final = "plain"
REASONING_FORMATS: Final = (
    "think",
    "deepseek_r1",
    "granite_think",
    "mistral_think",
    "cohere_think",
    "hunyuan_think",
)
# A chat template is searched for the marks of these families in this order. If a family's templates
# contain the marks of another family, the former family comes first.
CALL_FORMATS: Final = (
    "onyx",
    "gptoss",
    "gemma4",
    "functiongemma",
    "cohere",
    "nemotron",
    "hunyuan",
    "lfm2",
    "minicpm5",
    "qwen3coder",
    "glm4",
    "llama3_pythonic",
    "llama4_pythonic",
    "deepseek_v3",
    "deepseek_v31",
    "kimi_k2",
    "phi4",
    "granite",
    "devstral",
    "mistral",
    "llama3",
    "hermes",
)
# The names that other model servers use.
_ALIASES: Final = {"none": PLAIN, "hermes3": "hermes", "qwen3": "think"}


def check_output_format(name: str) -> str:
    """Return the usual spelling of a name such as `hermes`, `think` or `think+hermes`. Raises
    ValueError, with the known names."""
    known = (PLAIN, *REASONING_FORMATS, *CALL_FORMATS)
    match [_ALIASES.get(part, part) for part in name.split("+")]:
        case [one] if one in known:
            return one
        case [reasoning, calls] if reasoning in REASONING_FORMATS and calls in CALL_FORMATS:
            return f"{reasoning}+{calls}"
    raise ValueError(
        f"There is no output format {name!r}. Known formats are {', '.join(sorted(known))}, and "
        "reasoning with calls such as think+hermes."
    )
