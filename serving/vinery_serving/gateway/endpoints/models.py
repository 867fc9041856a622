"""The objects of `GET /models`: OpenAI's members, and those that clients of other servers read.
Anthropic's clients, which send their version, get Anthropic's objects.

vLLM's clients read `max_model_len`, LM Studio's `max_context_length` and `state`, OpenRouter's
`context_length`, `architecture`, `top_provider` and `supported_parameters`, and Mistral's
`capabilities`. They size prompts by them, and offer tools and reasoning.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from vinery_serving.core.request import SAMPLERS
from vinery_serving.core.tasks import Task
from vinery_serving.gateway.engines.directory import Engine, ModelEntry, ModelState
from vinery_serving.gateway.preparing.abilities import Abilities, abilities_of

# OpenRouter's names of the parameters that every model takes.
_PARAMETERS: Final = (
    *SAMPLERS, "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "response_format",
    "stop", "structured_outputs", "top_logprobs",
)  # fmt: skip
_OF_TOOLS: Final = ("parallel_tool_calls", "tool_choice", "tools")
_OF_REASONING: Final = ("include_reasoning", "reasoning", "reasoning_effort")


def model_body(entry: ModelEntry, engine: Engine | None, state: ModelState) -> dict[str, object]:
    """Return the object of a model. Without an engine its abilities are null: they are known when
    its files are read."""
    options = entry.options
    if not entry.task.is_generation:
        return _pooling_body(entry, engine, state)
    context = options.context_of(None) if engine is None else engine.max_context
    abilities = None if engine is None else abilities_of(engine)
    return {
        "id": entry.name,
        "object": "model",
        "created": int(entry.created_at.timestamp()),
        "owned_by": "vinery",
        "state": state.value,
        "task": entry.task.value,
        "max_model_len": context,
        "context_length": context,
        "max_context_length": context,
        "architecture": _modalities(abilities),
        "top_provider": {
            "context_length": context,
            "max_completion_tokens": options.max_tokens_limit or None,
            "is_moderated": False,
        },
        "capabilities": None if abilities is None else _capabilities(abilities),
        "supported_parameters": None if abilities is None else _parameters(abilities),
    }


def _pooling_body(entry: ModelEntry, engine: Engine | None, state: ModelState) -> dict[str, object]:
    """The object of a model that generates no text."""
    context = entry.options.max_context or None if engine is None else engine.max_context
    outputs = {Task.EMBEDDINGS: "embeddings", Task.RERANK: "rerank"}[entry.task]
    return {
        "id": entry.name,
        "object": "model",
        "created": int(entry.created_at.timestamp()),
        "owned_by": "vinery",
        "state": state.value,
        "task": entry.task.value,
        "max_model_len": context,
        "context_length": context,
        "max_context_length": context,
        "architecture": {
            "modality": f"text->{outputs}",
            "input_modalities": ["text"],
            "output_modalities": [outputs],
        },
        "top_provider": {
            "context_length": context,
            "max_completion_tokens": None,
            "is_moderated": False,
        },
        "capabilities": None,
        "supported_parameters": None,
    }


def anthropic_model(body: Mapping[str, Any]) -> dict[str, object]:
    """Return the object of a model in Anthropic's form, from that of `model_body`."""
    return {
        "type": "model",
        "id": body["id"],
        "display_name": body["id"],
        "created_at": datetime.fromtimestamp(body["created"], UTC).isoformat(),
        "max_input_tokens": body["max_model_len"],
        "max_tokens": body["top_provider"]["max_completion_tokens"],
        "lifecycle": "active",
    }


def anthropic_list(bodies: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return the models in Anthropic's form. All of them are one page."""
    models = [anthropic_model(body) for body in bodies]
    return {
        "data": models,
        "has_more": False,
        "first_id": models[0]["id"] if models else None,
        "last_id": models[-1]["id"] if models else None,
    }


def _modalities(abilities: Abilities | None) -> Mapping[str, object]:
    """OpenRouter's words, also before the abilities are known."""
    inputs = ["text"]
    if abilities is not None and abilities.sees:
        inputs += ["image", "file"]
    if abilities is not None and abilities.watches:
        inputs += ["video"]
    return {
        "modality": "+".join(inputs) + "->text",
        "input_modalities": inputs,
        "output_modalities": ["text"],
    }


def _capabilities(abilities: Abilities) -> dict[str, bool]:
    return {
        "completion": True,
        "completion_chat": abilities.chats,
        "completion_fim": abilities.fills_in_middle,
        "function_calling": abilities.calls_tools,
        "reasoning": abilities.reasons,
        "structured_outputs": True,
        "vision": abilities.sees,
        "audio": False,
    }


def _parameters(abilities: Abilities) -> list[str]:
    tools = _OF_TOOLS if abilities.calls_tools else ()
    reasoning = _OF_REASONING if abilities.reasons else ()
    return sorted((*_PARAMETERS, *tools, *reasoning))
