"""The outermost layer of both URL trees: request ids, CORS, preflight, JSON for the rest.

An ASGI middleware around everything under `/v1` and `/v3`. It answers `OPTIONS` without
asking who calls, because browsers send no key with it, and puts the same headers on every
answer, errors and streams included.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from serving.core.errors import ServingError
from serving.core.ids import new_id_token
from serving.protocols.common.encoding import error_body, error_headers

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

REQUEST_ID: Final = "vinery.request_id"
# What is known of the caller before the answer starts, as headers for it. A list, because
# routers hand on copies of the scope.
OF_CALLER: Final = "vinery.of_caller"
# The version of OpenAI's API: the only one that there has been.
_VERSION: Final = (b"openai-version", b"2020-10-01")
_METHODS: Final = b"GET, POST, DELETE, OPTIONS"
_EXPOSED: Final = (
    b"x-request-id, retry-after, retry-after-ms, x-should-retry, openai-processing-ms, "
    b"openai-organization, openai-version, "
    b"x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-limit-project-tokens, "
    b"x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, "
    b"x-ratelimit-remaining-project-tokens, x-ratelimit-reset-requests, "
    b"x-ratelimit-reset-tokens, x-ratelimit-reset-project-tokens"
)
_USUAL_HEADERS: Final = b"authorization, content-type"
# What a browser may ask to send: names only, so that nothing else can be reflected.
_HEADER_NAMES: Final = re.compile(rb"[A-Za-z0-9\-_, ]{1,2000}\Z")


class ApiEdge:
    """Wraps the application that serves one URL tree."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        request_id = f"req_{new_id_token()}"
        scope[REQUEST_ID] = request_id
        if scope["method"] == "OPTIONS":
            await _answer_preflight(scope, send, request_id)
            return
        has_started = False
        headers = edge_headers(request_id)
        of_caller: Headers = []
        scope[OF_CALLER] = of_caller
        started_at = time.monotonic()

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                duration_ms = int((time.monotonic() - started_at) * 1000)
                timing = (b"openai-processing-ms", str(duration_ms).encode())
                message["headers"] = [*message.get("headers", ()), *headers, *of_caller, timing]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except ServingError as error:
            await send_error(send_with_headers, error)
        except Exception:
            # The boundary: whatever broke, the client gets JSON and the log the reason.
            log.exception("request failed id=%s path=%s", request_id, scope["path"])
            if has_started:
                raise
            await send_error(send_with_headers, ServingError("The server failed. Try again."))


def edge_headers(request_id: str) -> Headers:
    """What every answer under the URL trees carries."""
    return [
        (b"x-request-id", request_id.encode()),
        _VERSION,
        (b"access-control-allow-origin", b"*"),
        (b"access-control-expose-headers", _EXPOSED),
    ]


async def send_error(send: Send, error: ServingError) -> None:
    """An error as OpenAI words it."""
    body = error_body(error)
    steering = error_headers(error).items()
    headers = [(name.lower().encode(), value.encode()) for name, value in steering]
    headers.append((b"content-type", b"application/json"))
    await send_whole(send, error.status, headers, body)


async def send_whole(
    send: Send,
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    *,
    is_head: bool = False,
) -> None:
    """An answer in one piece, or only its headers."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


async def _answer_preflight(scope: Scope, send: Send, request_id: str) -> None:
    asked = dict(scope["headers"]).get(b"access-control-request-headers", b"")
    allowed = asked if _HEADER_NAMES.match(asked) else _USUAL_HEADERS
    headers = [
        *edge_headers(request_id),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", allowed),
        (b"access-control-max-age", b"86400"),
        (b"vary", b"access-control-request-headers"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
