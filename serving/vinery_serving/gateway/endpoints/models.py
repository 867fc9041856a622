"""The objects of `GET /models`: OpenAI's members, and members for clients of other servers: vLLM's
clients read `max_model_len`, LM Studio's `max_context_length` and `state`, OpenRouter's
`context_length`, `architecture`, `top_provider` and `supported_parameters`, and Mistral's
`capabilities`. Anthropic's clients get Anthropic's objects."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from vinery_serving.core.request import SAMPLERS
from vinery_serving.core.tasks import Task
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.models import LoadedModel, ModelEntry, ModelState
from vinery_serving.protocols.models import (
    Model,
    ModelArchitecture,
    ModelCapabilities,
    ModelProvider,
)

# OpenRouter's names of the parameters that every model takes.
_PARAMETERS: Final = (
    *SAMPLERS, "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "response_format",
    "stop", "structured_outputs", "top_logprobs",
)  # fmt: skip
_OF_TOOLS: Final = ("parallel_tool_calls", "tool_choice", "tools")
_OF_REASONING: Final = ("include_reasoning", "reasoning", "reasoning_effort")


def capabilities_of(model: LoadedModel) -> ModelCapabilities:
    """Return the abilities that the model's files and output format allow."""
    assets, family = model.assets, model.family
    return ModelCapabilities(
        completion=True,
        completion_chat=assets.template_text is not None,
        completion_fim=assets.infill is not None,
        function_calling=assets.takes_tools and family.grammar.supports_calls,
        reasoning=family.parser.reasoning is not None,
        structured_outputs=True,
        vision=assets.vision is not None,
        audio=False,
    )


def model_object(entry: ModelEntry, engine: Engine | None, state: ModelState) -> Model:
    """Return the object of a model. Without an engine all abilities are null, because the model's
    files are not read yet. A model that generates no text has no abilities."""
    generates, options = entry.task.is_generation, entry.options
    if engine is not None:
        context = engine.max_context
    else:
        context = options.context_of(None) if generates else options.max_context or None
    loaded = engine if engine is not None and generates else None
    capabilities = None if loaded is None else capabilities_of(loaded)
    limit = (generates and options.max_tokens_limit) or None
    return Model(
        id=entry.name,
        created=int(entry.created_at.timestamp()),
        state=state.value,
        task=entry.task.value,
        max_model_len=context,
        context_length=context,
        max_context_length=context,
        architecture=_modalities(entry.task, loaded),
        top_provider=ModelProvider(
            context_length=context, max_completion_tokens=limit, is_moderated=False
        ),
        capabilities=capabilities,
        supported_parameters=None if capabilities is None else _parameters(capabilities),
    )


def anthropic_model(model: Model) -> dict[str, object]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat(),
        "max_input_tokens": model.max_model_len,
        "max_tokens": model.top_provider.max_completion_tokens,
        "lifecycle": "active",
    }


def anthropic_list(models: Sequence[Model]) -> dict[str, object]:
    """Return all models as one page in Anthropic's form."""
    return {
        "data": [anthropic_model(model) for model in models],
        "has_more": False,
        "first_id": models[0].id if models else None,
        "last_id": models[-1].id if models else None,
    }


def _modalities(task: Task, model: LoadedModel | None) -> ModelArchitecture:
    """OpenRouter's words, also before the files of a model are read (None)."""
    inputs = ["text"]
    output = {Task.EMBEDDINGS: "embeddings", Task.RERANK: "rerank"}.get(task, "text")
    vision = None if model is None else model.assets.vision
    if vision is not None:  # it takes pictures, and the pages of documents
        inputs += ["image", "file", *(["video"] if vision.takes_video else [])]
    modality = f"{'+'.join(inputs)}->{output}"
    return ModelArchitecture(modality=modality, input_modalities=inputs, output_modalities=[output])


def _parameters(capabilities: ModelCapabilities) -> list[str]:
    tools = _OF_TOOLS if capabilities.function_calling else ()
    reasoning = _OF_REASONING if capabilities.reasoning else ()
    return sorted((*_PARAMETERS, *tools, *reasoning))
