"""`GET /models` and `/tokenizer_info`.

The objects of models have OpenAI's members, and members for clients of other servers: vLLM's
clients read `max_model_len`, LM Studio's `max_context_length` and `state`, OpenRouter's
`context_length`, `architecture`, `top_provider` and `supported_parameters`, and Mistral's
`capabilities`. Anthropic's clients get Anthropic's objects.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from vinery_accounts.keys.table import Caller
from vinery_serving.core.errors import ModelNotFound
from vinery_serving.core.request import SAMPLERS
from vinery_serving.core.tasks import Task
from vinery_serving.gateway.endpoints.callers import permitted_caller, permitted_engine
from vinery_serving.gateway.endpoints.documents import document_of
from vinery_serving.gateway.endpoints.edge import App, Scope, speaks_anthropic
from vinery_serving.gateway.endpoints.stored import flag, query_of
from vinery_serving.gateway.engines.directory import Engine, LocalDirectory
from vinery_serving.gateway.engines.models import LoadedModel, ModelEntry, ModelState, alias_of
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.prompting.folder import TOKEN_KEYS
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.stored import (
    Model,
    ModelArchitecture,
    ModelCapabilities,
    ModelList,
    ModelProvider,
    TokenizerInfo,
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


# -- The endpoints


def list_models(runtime: Runtime) -> App:
    """Serve the key's models that can answer now, or all models of the key: `?all=true`."""

    async def read(scope: Scope) -> bytes:
        caller, directory = permitted_caller(runtime, scope), runtime.directory
        lists_all = flag(query_of(scope), "all")
        # A client cannot choose a name that ends in `*`.
        listed = [*directory.entries, *(each for each in directory.aliases if each[-1:] != "*")]
        found = (_model_of(name, directory, caller) for name in listed)
        models = [each for each in found if each is not None and (lists_all or _can_answer(each))]
        whole = anthropic_list(models) if speaks_anthropic(scope) else ModelList(data=models)
        return json_bytes(whole)

    return document_of(read)


def retrieve_model(runtime: Runtime) -> App:
    async def read(scope: Scope) -> bytes:
        caller, name = permitted_caller(runtime, scope), scope["url_route"]["kwargs"]["name"]
        model = _model_of(name, runtime.directory, caller)
        if model is None:
            raise ModelNotFound(f"The model `{name}` does not exist.", param="model")
        return json_bytes(anthropic_model(model) if speaks_anthropic(scope) else model)

    return document_of(read)


def tokenizer_info(runtime: Runtime) -> App:
    """Serve the model's tokenizer configuration, with the names of Hugging Face's files. `?model=`
    may be left out as in a body. vLLM has a switch for this endpoint, because it shows the chat
    template. Here it needs a key, and every key can see rendered prompts anyway
    (`return_prompt_text`)."""

    async def read(scope: Scope) -> bytes:
        caller, name = permitted_caller(runtime, scope), query_of(scope).get("model")
        folder = permitted_engine(runtime.directory, caller, name).assets.folder
        named: Mapping[str, Any] = {**dict.fromkeys(TOKEN_KEYS), **folder.named_tokens}
        info = TokenizerInfo(
            **named,
            tokenizer_class=folder.tokenizer_class,
            added_tokens_decoder=dict(folder.added_tokens),
            model_max_length=folder.max_context,
            chat_template=None if folder.templates is None else folder.templates.default,
        )
        return json_bytes(info)

    return document_of(read)


def _model_of(name: str, directory: LocalDirectory, caller: Caller) -> Model | None:
    """Return the object of a model or an alias; None if there is none for the key."""
    may_use, visible = caller.grants.allows_model, directory.entries_of(caller.project_id)
    entry = visible.get(name)
    if entry is not None:
        return _object_of(entry, directory) if may_use(name) else None
    alias = alias_of(name, directory.aliases)
    if alias is None:
        return None
    targets = directory.targets_of(alias, visible)
    usable = [each for each in targets if may_use(alias) or may_use(each)]
    models = [_object_of(visible[each], directory) for each in usable]
    # A model that can answer does, whatever the weights.
    shown = next(filter(_can_answer, models), models[0] if models else None)
    return None if shown is None else replace(shown, id=name, alias_of=usable)


def _can_answer(model: Model) -> bool:
    return ModelState(model.state).can_answer


def _object_of(entry: ModelEntry, directory: LocalDirectory) -> Model:
    return model_object(entry, directory.engine_of(entry), directory.state_of(entry))
