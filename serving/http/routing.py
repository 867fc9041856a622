"""Generation and tokenizers, routed past Django's middleware: a Channels consumer for each."""

from __future__ import annotations

from typing import Any, cast

from channels.routing import URLRouter
from django.urls import re_path

from serving.core.request import Endpoint
from serving.http.consumers import GenerationConsumer
from serving.http.documents import Document, openapi, version
from serving.http.edge import ApiEdge, App
from serving.http.token_consumers import (
    DetokenizeConsumer,
    InputTokensConsumer,
    TokenizeConsumer,
)
from serving.http.usage_me import KeyUsage
from serving.runtime.runtime import Runtime


def api_application(runtime: Runtime, otherwise: App) -> ApiEdge:
    """Both URL trees, and what the server says of itself. All else goes to `otherwise`."""
    doors = [
        re_path(
            rf"^(?P<tree>v1|v3)/{endpoint}/?$",
            GenerationConsumer.as_asgi(runtime=runtime, endpoint=endpoint),
        )
        for endpoint in Endpoint
    ]
    # vLLM has these at the root, OVMS under `/v1`.
    tokenizers = [
        re_path(rf"^(?:(?P<tree>v1|v3)/)?{name}/?$", consumer.as_asgi(runtime=runtime))
        for name, consumer in (("tokenize", TokenizeConsumer), ("detokenize", DetokenizeConsumer))
    ]
    counting = re_path(
        r"^(?P<tree>v1|v3)/responses/input_tokens/?$",
        InputTokensConsumer.as_asgi(runtime=runtime),
    )
    usage = re_path(r"^(?:v1|v3)/usage/me/?$", cast("Any", KeyUsage(runtime)))
    documents = [
        re_path(r"^version/?$", cast("Any", Document(version))),
        re_path(r"^openapi\.json$", cast("Any", Document(openapi))),
    ]
    # Channels routes to ASGI applications by Django's own patterns, whose type knows only
    # views.
    rest = re_path(r"", cast("Any", otherwise))
    return ApiEdge(URLRouter([*doors, *tokenizers, counting, usage, *documents, rest]))
