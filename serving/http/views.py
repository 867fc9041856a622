"""What is asked for without generating: models, and responses that are not stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from accounts.keys.table import Caller
from serving.core.errors import MethodNotAllowed, ModelNotFound, NotFound, ServingError
from serving.flow.directory import ModelEntry
from serving.http.callers import as_errors, authenticate
from serving.prompting.folder import TOKEN_KEYS
from serving.protocols.common.encoding import error_headers, error_object
from serving.runtime.runtime import runtime

# Django's types do not know that a view may be a coroutine function.
View = Callable[..., Any]


def for_clients(view: View, *, methods: Sequence[str] = ("GET",)) -> View:
    """These methods only, with a key, and every error as OpenAI words it."""
    allowed = {*methods, "HEAD"} if "GET" in methods else set(methods)

    # A key is sent on purpose, never by a browser on its own: there is nothing to forge.
    @csrf_exempt
    @wraps(view)
    async def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> JsonResponse:
        try:
            if request.method not in allowed:
                raise MethodNotAllowed(request.method or "", allowed=", ".join(methods))
            _caller(request)
            response: JsonResponse = await view(request, *args, **kwargs)
            return response
        except ServingError as error:
            return error_response(error)

    return guarded


def error_response(error: ServingError) -> JsonResponse:
    """An error as a Django response."""
    return JsonResponse(error_object(error), status=error.status, headers=error_headers(error))


@for_clients
async def list_models(request: HttpRequest, tree: str) -> JsonResponse:
    """All served models that the key may use, loaded or not: `{"object": "list", "data":
    [...]}`."""
    grants = _caller(request).grants
    entries = runtime().directory.entries.values()
    bodies = [_body(entry) for entry in entries if grants.allows_model(entry.name)]
    return JsonResponse({"object": "list", "data": bodies})


@for_clients
async def retrieve_model(request: HttpRequest, tree: str, name: str) -> JsonResponse:
    """One served model."""
    entry = runtime().directory.entries.get(name)
    if entry is None or not _caller(request).grants.allows_model(name):
        raise ModelNotFound(f"The model `{name}` does not exist.", param="model")
    return JsonResponse(_body(entry))


@for_clients
async def tokenizer_info(request: HttpRequest) -> JsonResponse:
    """What a client needs to prompt like a model's own tokenizer, in the words of Hugging
    Face's files; `?model=` may be left out where there is one.

    vLLM has a switch for it, as it shows the chat template. Here a key is needed, and who has
    one may see what the template makes of any message (`return_prompt_text`).
    """
    engine = runtime().directory.find(request.GET.get("model"))
    with as_errors():
        _caller(request).grants.check_model(engine.entry.name)
    folder = engine.assets.folder
    templates = folder.templates
    return JsonResponse(
        {
            **dict.fromkeys(TOKEN_KEYS),
            **folder.named_tokens,
            "tokenizer_class": folder.tokenizer_class,
            "added_tokens_decoder": dict(folder.added_tokens),
            "model_max_length": folder.max_context,
            "chat_template": None if templates is None else templates.default,
        }
    )


async def no_response(request: HttpRequest, tree: str, response_id: str) -> JsonResponse:
    """Stored responses: there are none yet, so none is found."""
    raise NotFound(f"Response with id '{response_id[:128]}' not found.")


def _caller(request: HttpRequest) -> Caller:
    """Raises `ServingError` for who has no key, or none for this place."""
    scope = getattr(request, "scope", {})  # requests by WSGI have none
    caller = authenticate(runtime(), scope, request.headers.get("authorization"))
    with as_errors():
        caller.grants.check_address(request.META.get("REMOTE_ADDR"))
    return caller


def _body(entry: ModelEntry) -> dict[str, object]:
    return {
        "id": entry.name,
        "object": "model",
        "created": int(entry.created_at.timestamp()),
        "owned_by": "vinery",
    }


@csrf_exempt
async def unknown_route(request: HttpRequest, tree: str) -> JsonResponse:
    """Anything else under a URL tree. Says what there is, since a wrong URL is the most
    common first mistake."""
    return error_response(
        NotFound(
            f"There is nothing at {request.method} {request.path}. This server has POST "
            f"/{tree}/chat/completions, /{tree}/completions, /{tree}/responses, "
            f"/{tree}/tokenize, /{tree}/detokenize, and GET /{tree}/models, "
            f"/{tree}/tokenizer_info and /{tree}/usage/me.",
        )
    )
