"""The Django views of both URL trees: models and tokenizers. Stored objects are in `stored`.
Endpoints with JSON bodies are in `answers`."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt
from msgspec import to_builtins
from msgspec.structs import replace

from vinery_accounts.keys.table import Caller
from vinery_accounts.models import Scope as KeyScope
from vinery_serving.core import errors
from vinery_serving.gateway.endpoints.callers import (
    authenticate,
    authorization_of,
    check_grants,
    permitted_engine,
)
from vinery_serving.gateway.endpoints.edge import error_response, speaks_anthropic
from vinery_serving.gateway.endpoints.models import anthropic_list, anthropic_model, model_object
from vinery_serving.gateway.endpoints.stored import flag
from vinery_serving.gateway.engines.models import ModelEntry, ModelState, alias_of
from vinery_serving.gateway.state.runtime import runtime
from vinery_serving.prompting.folder import TOKEN_KEYS
from vinery_serving.protocols.models import Model, ModelList, TokenizerInfo

View = Callable[..., Any]  # Django's types do not know that a view may be a coroutine function


def for_clients(view: View) -> View:
    """Allow `GET` only, demand a key, pass its caller on, and send errors in the client's form."""

    # Browsers never send keys on their own, so requests cannot be forged.
    @csrf_exempt
    @wraps(view)
    async def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> JsonResponse:
        try:
            if request.method not in ("GET", "HEAD"):
                raise errors.MethodNotAllowed(request.method or "", allowed="GET")
            response: JsonResponse = await view(request, _caller(request), *args, **kwargs)
            return response
        except errors.ServingError as error:
            return error_response(error, request)

    return guarded


@for_clients
async def list_models(request: HttpRequest, caller: Caller, tree: str) -> JsonResponse:
    """Answer with the key's models that can answer now, or with all of the key: `?all=true`."""
    lists_all = flag(request.GET, "all")
    directory = runtime().directory
    # A client cannot choose a name that ends in `*`.
    listed = [*directory.entries, *(each for each in directory.aliases if each[-1:] != "*")]
    models = [
        model
        for name in listed
        if (model := _model_of(name, caller)) is not None and (lists_all or _can_answer(model))
    ]
    if _speaks_anthropic(request):
        return JsonResponse(anthropic_list(models))
    return JsonResponse(to_builtins(ModelList(data=models)))


@for_clients
async def retrieve_model(
    request: HttpRequest, caller: Caller, tree: str, name: str
) -> JsonResponse:
    model = _model_of(name, caller)
    if model is None:
        raise errors.ModelNotFound(f"The model `{name}` does not exist.", param="model")
    return JsonResponse(
        anthropic_model(model) if _speaks_anthropic(request) else to_builtins(model)
    )


@for_clients
async def tokenizer_info(request: HttpRequest, caller: Caller) -> JsonResponse:
    """The model's tokenizer configuration, with the names of Hugging Face's files. `?model=` may be
    left out as in a body. vLLM has a switch for this endpoint, because it shows the chat template.
    Here it needs a key, and every key can see rendered prompts anyway (`return_prompt_text`)."""
    folder = permitted_engine(runtime().directory, caller, request.GET.get("model")).assets.folder
    templates = folder.templates
    named: Mapping[str, Any] = {**dict.fromkeys(TOKEN_KEYS), **folder.named_tokens}
    info = TokenizerInfo(
        **named,
        tokenizer_class=folder.tokenizer_class,
        added_tokens_decoder=dict(folder.added_tokens),
        model_max_length=folder.max_context,
        chat_template=None if templates is None else templates.default,
    )
    return JsonResponse(to_builtins(info))


def _caller(request: HttpRequest) -> Caller:
    """Raises `ServingError` without a valid key, or for a key without the right to this."""
    scope = getattr(request, "scope", {})  # WSGI requests have none
    sent = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    caller = authenticate(runtime().required_keys, scope, authorization_of(sent))
    check_grants(caller, KeyScope.INFERENCE, request.META.get("REMOTE_ADDR"))
    return caller


def _speaks_anthropic(request: HttpRequest) -> bool:
    return speaks_anthropic(getattr(request, "scope", {"path": "", "headers": ()}))


def _model_of(name: str, caller: Caller) -> Model | None:
    """Return the object of a model or an alias; None if there is none for the key."""
    directory, may_use = runtime().directory, caller.grants.allows_model
    visible = directory.entries_of(caller.project_id)
    entry = visible.get(name)
    if entry is not None:
        return _object_of(entry) if may_use(name) else None
    alias = alias_of(name, directory.aliases)
    if alias is None:
        return None
    targets = [
        each for each in directory.targets_of(alias, visible) if may_use(alias) or may_use(each)
    ]
    if not targets:
        return None
    models = [_object_of(visible[each]) for each in targets]
    # A model that can answer does, whatever the weights.
    shown = next((model for model in models if _can_answer(model)), models[0])
    return replace(shown, id=name, alias_of=targets)


def _can_answer(model: Model) -> bool:
    return ModelState(model.state).can_answer


def _object_of(entry: ModelEntry) -> Model:
    directory = runtime().directory
    return model_object(entry, directory.engine_of(entry), directory.state_of(entry))


@csrf_exempt
async def unknown_route(request: HttpRequest, tree: str) -> JsonResponse:
    """Refuse any other path with the list of endpoints: a wrong URL is a common first mistake."""
    return error_response(
        errors.NotFound(
            f"Not found: {request.method} {request.path}. This server has POST "
            f"/{tree}/chat/completions, /{tree}/completions, /{tree}/responses, "
            f"/{tree}/messages, /{tree}/embeddings, /{tree}/rerank, /{tree}/score, "
            f"/{tree}/tokenize, /{tree}/detokenize, /{tree}/conversations, and GET /{tree}/models, "
            f"/{tree}/responses/ID, /{tree}/conversations/ID, /{tree}/chat/completions, "
            f"/{tree}/tokenizer_info and /{tree}/usage/me."
        ),
        request,
    )


urlpatterns = [
    re_path(r"^(?P<tree>v1|v3)/models/?$", list_models),
    # Names may contain slashes, which clients percent-encode and servers decode.
    re_path(r"^(?P<tree>v1|v3)/models/(?P<name>.+)$", retrieve_model),
    re_path(r"^(?:(?:v1|v3)/)?tokenizer_info/?$", tokenizer_info),  # vLLM has this path at the root
    re_path(r"^(?P<tree>v1|v3)(?:/.*)?$", unknown_route),
]
