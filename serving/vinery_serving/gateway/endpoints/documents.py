"""Endpoints that answer `GET` with a JSON document: the version, the OpenAPI document, the models,
and the limits of the calling key with usage and next resets.

The objects of models have OpenAI's members, and members for clients of other servers: vLLM's
clients read `max_model_len`, LM Studio's `max_context_length` and `state`, OpenRouter's
`context_length`, `architecture`, `top_provider` and `supported_parameters`, and Mistral's
`capabilities`. Anthropic's clients get Anthropic's objects.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from msgspec.structs import replace

from vinery_accounts.keys.table import Caller
from vinery_accounts.limits.reservations import Level, LimitsUnavailable
from vinery_accounts.limits.rules import Kind, Rule
from vinery_accounts.limits.service import scopes_of
from vinery_accounts.limits.windows import window_at
from vinery_accounts.models import Scope as KeyScope
from vinery_serving.core.errors import MethodNotAllowed, ModelNotFound, Unavailable
from vinery_serving.core.request import SAMPLERS
from vinery_serving.core.tasks import Task
from vinery_serving.gateway.endpoints.callers import permitted_caller, permitted_engine
from vinery_serving.gateway.endpoints.edge import (
    JSON,
    App,
    Receive,
    Scope,
    Send,
    send_parts,
    send_whole,
    speaks_anthropic,
)
from vinery_serving.gateway.endpoints.stored import flag, query_of
from vinery_serving.gateway.engines.directory import LocalDirectory
from vinery_serving.gateway.engines.models import LoadedModel, ModelEntry, ModelState, alias_of
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.prompting.folder import TOKEN_KEYS
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.openapi import document
from vinery_serving.protocols.stored import (
    Model,
    ModelArchitecture,
    ModelCapabilities,
    ModelList,
    ModelProvider,
    TokenizerInfo,
)

_PART_BYTES: Final = 8 * 1024  # bytes of a document that are sent in one pass of the event loop
# The thread starts with the first document.
_BUILDING: Final = ThreadPoolExecutor(1, thread_name_prefix="documents")
# OpenRouter's names of the parameters that every model takes.
_PARAMETERS: Final = (
    *SAMPLERS, "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "response_format",
    "stop", "structured_outputs", "top_logprobs",
)  # fmt: skip
_OF_TOOLS: Final = ("parallel_tool_calls", "tool_choice", "tools")
_OF_REASONING: Final = ("include_reasoning", "reasoning", "reasoning_effort")


def document_of(read: Callable[[Scope], Awaitable[bytes]], allowed: str = "GET") -> App:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["method"] == "HEAD"
        if not is_head and scope["method"] != "GET":
            raise MethodNotAllowed(scope["method"], allowed=allowed)
        body = await read(scope)
        if is_head or len(body) <= _PART_BYTES:
            await send_whole(send, 200, JSON, body, is_head=is_head)
            return
        headers = [*JSON, (b"content-length", str(len(body)).encode())]
        starts = range(0, len(body), _PART_BYTES)
        await send_parts(send, headers, (body[at : at + _PART_BYTES] for at in starts))

    return answer


def constant(build: Callable[[], bytes]) -> App:
    """Serve the same document to every client, without a key."""
    built: list[bytes] = []

    async def read(scope: Scope) -> bytes:
        if not built:
            built.append(await asyncio.get_running_loop().run_in_executor(_BUILDING, build))
        return built[0]

    return document_of(read, "GET, HEAD")


def version() -> bytes:
    return json.dumps({"version": settings.VINERY_VERSION}).encode()


def openapi() -> bytes:
    """Return the OpenAPI document. The first call takes about 0.1 s."""
    max_body_mb = settings.VINERY_MAX_BODY_BYTES // 2**20
    contents = document(version=settings.VINERY_VERSION, max_body_mb=max_body_mb)
    return json.dumps(contents, ensure_ascii=False).encode()


async def key_usage(runtime: Runtime, scope: Scope) -> bytes:
    """The limits of the key, of the key's owners, and of the models that the key may use."""
    caller = permitted_caller(runtime, scope, KeyScope.USAGE)
    book = runtime.limits.book
    visible = runtime.directory.entries_of(caller.project_id)
    models = [f"model:{name}" for name in visible if caller.grants.allows_model(name)]
    rules = [rule for scope in (*scopes_of(caller), *models) for rule in book.rules_in(scope)]
    try:
        levels = await runtime.limits.levels(rules)
    except LimitsUnavailable:
        raise Unavailable("The limits cannot be read just now. Try again.") from None
    usage = {
        "object": "usage",
        "key": {"id": caller.key_id, "name": caller.key_name},
        "user": caller.username,
        "project": {"id": caller.project_id, "name": caller.project_name},
        "organization": {"id": caller.organization_id, "name": caller.organization_name},
        "limits": [_limit(level, time.time()) for level in levels],
    }
    return json_bytes(usage)


def _limit(level: Level, now_s: float) -> dict[str, object]:
    rule, reset_s = level.rule, level.reset_s
    resets_at = _resets_at(rule, reset_s, now_s)
    return {
        "id": rule.id,
        "scope": rule.scope_kind,
        "model": rule.owner if rule.scope_kind == "model" else None,
        "metric": rule.metric,
        "window": rule.window,
        "limit": rule.amount,
        "used": level.num_used,
        "remaining": max(0, level.num_remaining),
        "resets_in_s": reset_s,
        "resets_at": resets_at and resets_at.isoformat(),
        "time_zone": rule.time_zone,
        "week_start": rule.week_start,
        "is_shadow": rule.is_shadow,
    }


def _resets_at(rule: Rule, reset_s: float | None, now_s: float) -> datetime | None:
    if rule.kind is Kind.CALENDAR:
        # Exactly midnight: the sum of two clocks would be off by milliseconds.
        _, ends_ms = window_at(rule, round(now_s * 1000))
        return datetime.fromtimestamp(ends_ms / 1000, UTC)
    return None if reset_s is None else datetime.fromtimestamp(now_s + reset_s, UTC)


# -- Models


def _capabilities_of(model: LoadedModel) -> ModelCapabilities:
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


def _model_object(entry: ModelEntry, directory: LocalDirectory) -> Model:
    """Without an engine all abilities are null, because the model's files are not read yet. A model
    that generates no text has no abilities."""
    engine, generates, options = directory.engine_of(entry), entry.task.is_generation, entry.options
    if engine is not None:
        context = engine.max_context
    else:
        context = options.context_of(None) if generates else options.max_context or None
    loaded = engine if engine is not None and generates else None
    capabilities = None if loaded is None else _capabilities_of(loaded)
    limit = (generates and options.max_tokens_limit) or None
    return Model(
        id=entry.name,
        created=int(entry.created_at.timestamp()),
        state=directory.state_of(entry).value,
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


def _anthropic_model(model: Model) -> dict[str, object]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat(),
        "max_input_tokens": model.max_model_len,
        "max_tokens": model.top_provider.max_completion_tokens,
        "lifecycle": "active",
    }


def _modalities(task: Task, model: LoadedModel | None) -> ModelArchitecture:
    """OpenRouter's words, also before the files of a model are read (None)."""
    inputs = ["text"]
    output = "text" if task.is_generation else task.value
    vision = None if model is None else model.assets.vision
    if vision is not None:  # it takes pictures, and the pages of documents
        inputs += ["image", "file", *(["video"] if vision.takes_video else [])]
    modality = f"{'+'.join(inputs)}->{output}"
    return ModelArchitecture(modality=modality, input_modalities=inputs, output_modalities=[output])


def _parameters(capabilities: ModelCapabilities) -> list[str]:
    tools = _OF_TOOLS if capabilities.function_calling else ()
    reasoning = _OF_REASONING if capabilities.reasoning else ()
    return sorted((*_PARAMETERS, *tools, *reasoning))


async def list_models(runtime: Runtime, scope: Scope) -> bytes:
    """Serve the key's models that can answer now, or all models of the key: `?all=true`."""
    caller, directory = permitted_caller(runtime, scope), runtime.directory
    lists_all = flag(query_of(scope), "all")
    # A client cannot choose a name that ends in `*`.
    listed = [*directory.entries, *(each for each in directory.aliases if each[-1:] != "*")]
    found = (_model_of(name, directory, caller) for name in listed)
    models = [each for each in found if each is not None and (lists_all or _can_answer(each))]
    if not speaks_anthropic(scope):
        return json_bytes(ModelList(data=models))
    ids: list[str | None] = [each.id for each in models] or [None]
    data = [_anthropic_model(model) for model in models]
    page = {"data": data, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}
    return json_bytes(page)


async def retrieve_model(runtime: Runtime, scope: Scope) -> bytes:
    caller, name = permitted_caller(runtime, scope), scope["url_route"]["kwargs"]["name"]
    model = _model_of(name, runtime.directory, caller)
    if model is None:
        raise ModelNotFound(f"The model `{name}` does not exist.", param="model")
    return json_bytes(_anthropic_model(model) if speaks_anthropic(scope) else model)


async def tokenizer_info(runtime: Runtime, scope: Scope) -> bytes:
    """Serve the model's tokenizer configuration, with the names of Hugging Face's files. `?model=`
    may be left out as in a body. vLLM has a switch for this endpoint, because it shows the chat
    template. Here it needs a key, and every key can see rendered prompts anyway
    (`return_prompt_text`)."""
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


def _model_of(name: str, directory: LocalDirectory, caller: Caller) -> Model | None:
    """Return the object of a model or an alias; None if there is none for the key."""
    may_use, visible = caller.grants.allows_model, directory.entries_of(caller.project_id)
    entry = visible.get(name)
    if entry is not None:
        return _model_object(entry, directory) if may_use(name) else None
    alias = alias_of(name, directory.aliases)
    if alias is None:
        return None
    targets = directory.targets_of(alias, visible)
    usable = [each for each in targets if may_use(alias) or may_use(each)]
    models = [_model_object(visible[each], directory) for each in usable]
    # A model that can answer does, whatever the weights.
    shown = next(filter(_can_answer, models), models[0] if models else None)
    return None if shown is None else replace(shown, id=name, alias_of=usable)


def _can_answer(model: Model) -> bool:
    return ModelState(model.state).can_answer
