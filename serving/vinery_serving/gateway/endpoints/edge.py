"""The outermost layers of both URL trees, ASGI middlewares all: paths of other servers, then
request ids, CORS, preflight requests and JSON errors, then turns of clients."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, MutableMapping
from itertools import takewhile
from typing import Any, Final, NamedTuple

from django.http import HttpRequest, JsonResponse
from msgspec import to_builtins

from vinery_serving.core.dialects import DIALECTS, V1
from vinery_serving.core.errors import ServingError
from vinery_serving.core.ids import new_id_token
from vinery_serving.core.turns import FairTurns
from vinery_serving.protocols.common.encoding import Answer, error_headers, error_object, json_bytes
from vinery_serving.protocols.messages import exchange as anthropic

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
JSON: Final = [(b"content-type", b"application/json")]
REQUEST_ID: Final = "vinery.request_id"
# The headers of the answer that depend on the request: the caller's organisation, and fields of the
# body without effect. A list, because routers copy the scope.
OWN_HEADERS: Final = "vinery.own_headers"
# The version of OpenAI's API. There has been only one.
_VERSION: Final = (b"openai-version", b"2020-10-01")
_EXPOSED: Final = (
    b"x-request-id, request-id, retry-after, retry-after-ms, x-should-retry, openai-processing-ms, "
    b"openai-organization, openai-version, x-vinery-ignored, x-vinery-clamped, "
    b"x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-limit-project-tokens, "
    b"x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, "
    b"x-ratelimit-remaining-project-tokens, x-ratelimit-reset-requests, "
    b"x-ratelimit-reset-tokens, x-ratelimit-reset-project-tokens"
)
_ANTHROPIC_PATHS: Final = re.compile(r"/+(?:v1|v3)/+messages(?:/|\Z)")
# The header names that a browser may request. Nothing else is reflected.
_HEADER_NAMES: Final = re.compile(rb"[A-Za-z0-9\-_, ]{1,2000}\Z")


class ApiEdge:
    """Adds the same headers to every answer, to errors and streams, too, and gives Anthropic's
    clients errors in Anthropic's form, and all others in OpenAI's. Answers `OPTIONS` without
    authentication, because browsers send no key there."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = f"req_{new_id_token()}"
        scope[REQUEST_ID] = request_id
        if scope["method"] == "OPTIONS":
            await _answer_preflight(scope, send, request_id)
            return
        has_started = False
        headers = edge_headers(request_id)
        if speaks_anthropic(scope):
            headers.append((b"request-id", request_id.encode()))
        own_headers: Headers = []
        scope[OWN_HEADERS] = own_headers
        started_at = time.monotonic()

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                duration_ms = int((time.monotonic() - started_at) * 1000)
                timing = (b"openai-processing-ms", str(duration_ms).encode())
                message["headers"] = [*message.get("headers", ()), *headers, *own_headers, timing]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except ServingError as error:
            if not has_started:
                await send_error(send_with_headers, error, scope)
        except Exception:
            # The last handler of errors: the client gets JSON, and the log the traceback.
            named = {"request_id": request_id, "path": scope["path"]}
            log.exception("request failed", extra={"fields": named})
            if has_started:
                raise
            await send_error(send_with_headers, server_failed(), scope)


def server_failed() -> ServingError:
    """The error that clients get for a defect of the server, whose reason is in the log alone."""
    return ServingError("The server failed. Try again.")


def edge_headers(request_id: str) -> Headers:
    return [
        (b"x-request-id", request_id.encode()),
        _VERSION,
        (b"access-control-allow-origin", b"*"),
        (b"access-control-expose-headers", _EXPOSED),
    ]


def speaks_anthropic(scope: Scope) -> bool:
    """Whether the client expects Anthropic's protocol: such clients always send a version."""
    is_path = _ANTHROPIC_PATHS.match(scope["path"]) is not None
    return is_path or header(scope, b"anthropic-version") is not None


def _error_object(error: ServingError, scope: Scope) -> Answer:
    if speaks_anthropic(scope):
        return anthropic.error_object(error, scope.get(REQUEST_ID))
    return error_object(error)


def error_body(error: ServingError, scope: Scope) -> bytes:
    return json_bytes(_error_object(error, scope))


async def send_error(send: Send, error: ServingError, scope: Scope) -> None:
    named = error_headers(error).items()
    headers = [(name.lower().encode(), value.encode()) for name, value in named]
    await send_whole(send, error.status, [*headers, *JSON], error_body(error, scope))


def error_response(error: ServingError, request: HttpRequest) -> JsonResponse:
    scope = getattr(request, "scope", None)  # WSGI requests have none
    body = error_object(error) if scope is None else _error_object(error, scope)
    return JsonResponse(to_builtins(body), status=error.status, headers=error_headers(error))


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header of this name, which is in lower case."""
    return next((value for key, value in scope["headers"] if key == name), None)


async def send_whole(
    send: Send,
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    *,
    is_head: bool = False,
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


async def send_parts(send: Send, headers: Headers, parts: Iterator[bytes]) -> None:
    """Send a long body as fast as the client reads, while other requests go on."""
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    part = next(parts, b"")
    while part:
        following = next(parts, b"")  # before the last part is sent
        await send({"type": "http.response.body", "body": part, "more_body": bool(following)})
        await asyncio.sleep(0)
        part = following


async def _answer_preflight(scope: Scope, send: Send, request_id: str) -> None:
    requested = dict(scope["headers"]).get(b"access-control-request-headers", b"")
    is_plain = _HEADER_NAMES.match(requested) is not None
    allowed = requested if is_plain else b"authorization, content-type"
    headers = [
        *edge_headers(request_id),
        (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
        (b"access-control-allow-headers", allowed),
        (b"access-control-max-age", b"86400"),
        (b"vary", b"access-control-request-headers"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


# -- The paths that clients of other servers send

# The model that the path names, which replaces the body's, as Azure's deployments do.
DEPLOYMENT: Final = "vinery.deployment"
# Names of models may have empty segments.
_AS_SENT: Final = tuple(f"/{tree}/models/" for tree in DIALECTS)
_PREFIXES: Final = (*DIALECTS, "v2")  # `v2` is Cohere's


class OwnPath(NamedTuple):
    path: str
    deployment: str | None = None


def own_path(path: str) -> OwnPath:
    """Return the path of this API for a decoded path; any other path unchanged."""
    if path.startswith(_AS_SENT):
        return OwnPath(path)
    match [part for part in path.split("/") if part]:
        case ["openai", "deployments", *model, "chat", "completions"] if model:
            return OwnPath(f"/{V1.name}/chat/completions", "/".join(model))
        case ["openai", "deployments", *model, "completions" | "embeddings" as last] if model:
            return OwnPath(f"/{V1.name}/{last}", "/".join(model))
        case ["openai", V1.name, *rest]:
            return OwnPath(_with_one_prefix(V1.name, *rest))
        case [
            "openai",
            "chat" | "completions" | "responses" | "models" | "embeddings" as first,
            *rest,
        ]:
            return OwnPath(_with_one_prefix(V1.name, first, *rest))
        case [prefix, *rest] if prefix in _PREFIXES:
            return OwnPath(_with_one_prefix(prefix, *rest))
    return OwnPath(path)


def _with_one_prefix(*parts: str) -> str:
    """Return a path with one prefix, the last that is not `v1`, or else `v1`: a base URL may end
    with a prefix, and the client adds another."""
    prefixes = list(takewhile(_PREFIXES.__contains__, parts))
    own = [each for each in prefixes if each != V1.name] or [V1.name]
    return "/".join(("", own[-1], *parts[len(prefixes) :]))


def with_own_paths(app: App) -> App:
    """Give the routes the paths of this API. Azure's clients name the model in the path, as a
    deployment. A base URL that ends with a slash or a prefix may double the slash or the prefix.
    The new path goes through the same routes, keys and limits as a path that the client sent."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        path, deployment = own_path(scope["path"])
        await app({**scope, "path": path, DEPLOYMENT: deployment}, receive, send)

    return call


_MOST_IN_A_PASS: Final = 16  # the first step of a request takes up to a millisecond


class BeginInTurns:
    """Begins a few requests in each pass of the event loop, in turns of their clients. The loop
    runs everything that is ready before it looks for new events. A thousand requests that come at
    once would be begun in one pass, and each other client would wait for all of them."""

    def __init__(
        self, app: App, client_of: Callable[[Scope], Hashable], most: int = _MOST_IN_A_PASS
    ) -> None:
        """`client_of` finds the client of a request, and is called only if there is a queue."""
        self._app, self._client_of = app, client_of
        # The requests of this pass. No more wait than there are connections.
        self._turns = FairTurns(most, max_each=most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_first = not self._turns.num_running
        if not self._turns.begin_now(None):
            await self._turns.begin(self._client_of(scope))
        elif is_first:
            asyncio.get_running_loop().call_soon(self._begin_pass)
        await self._app(scope, receive, send)

    def _begin_pass(self) -> None:
        self._turns.end_all()
        if self._turns.num_running:
            asyncio.get_running_loop().call_soon(self._begin_pass)
