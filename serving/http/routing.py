"""Routes of the ASGI applications that bypass Django's middleware: generation, tokenizers, the
usage of a key, the version and the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from channels.routing import URLRouter
from django.conf import settings
from django.urls import re_path

from serving.core.errors import MethodNotAllowed
from serving.core.request import Endpoint
from serving.http.consumers import (
    DetokenizeConsumer,
    GenerationConsumer,
    InputTokensConsumer,
    TokenizeConsumer,
)
from serving.http.edge import JSON, ApiEdge, App, Receive, Scope, Send, send_whole
from serving.http.usage_me import KeyUsage
from serving.protocols.openapi.document import Facts, document
from serving.runtime.runtime import Runtime


def api_application(runtime: Runtime, rest: App) -> ApiEdge:
    """The API under both URL trees. Other paths go to `rest`."""
    generation = [
        re_path(
            rf"^(?P<tree>v1|v3)/{endpoint}/?$",
            GenerationConsumer.as_asgi(runtime=runtime, endpoint=endpoint),
        )
        for endpoint in Endpoint
    ]
    # vLLM has these paths at the root, OVMS under `/v1`.
    tokenizers = [
        re_path(rf"^(?:(?P<tree>v1|v3)/)?{name}/?$", consumer.as_asgi(runtime=runtime))
        for name, consumer in (("tokenize", TokenizeConsumer), ("detokenize", DetokenizeConsumer))
    ]
    counting = re_path(
        r"^(?P<tree>v1|v3)/responses/input_tokens/?$",
        InputTokensConsumer.as_asgi(runtime=runtime),
    )
    # The casts: Channels routes to ASGI applications by Django's patterns, typed for views only.
    others = [
        re_path(r"^(?:v1|v3)/usage/me/?$", cast("Any", KeyUsage(runtime))),
        re_path(r"^version/?$", cast("Any", Document(_version))),
        re_path(r"^openapi\.json$", cast("Any", Document(_openapi))),
        re_path(r"", cast("Any", rest)),
    ]
    return ApiEdge(URLRouter([*generation, *tokenizers, counting, *others]))


class Document:
    """An ASGI application that answers `GET` with a constant JSON document. It needs no key."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Raises `MethodNotAllowed`."""
        if scope["method"] not in ("GET", "HEAD"):
            raise MethodNotAllowed(scope["method"], allowed="GET, HEAD")
        body = await asyncio.to_thread(self._read)
        await send_whole(send, 200, JSON, body, is_head=scope["method"] == "HEAD")


@cache
def _version() -> bytes:
    """The version, in vLLM's format."""
    return json.dumps({"version": settings.VINERY_VERSION}).encode()


@cache
def _openapi() -> bytes:
    """The OpenAPI document. The first call takes about 0.1 s."""
    facts = Facts(settings.VINERY_VERSION, settings.VINERY_MAX_BODY_BYTES // 2**20)
    return json.dumps(document(facts), ensure_ascii=False).encode()
