"""The URLs of the API, and what answers them."""

from typing import Any, cast

from channels.routing import URLRouter
from django.urls import re_path

from vinery_serving.core.endpoints import PoolingEndpoint
from vinery_serving.core.request import Endpoint
from vinery_serving.http.callers import (
    client_of,
)
from vinery_serving.http.consumers import TokensConsumer
from vinery_serving.http.documents import ConstantDocument, KeyUsage, openapi, version
from vinery_serving.http.edge import (
    ApiEdge,
    App,
)
from vinery_serving.http.generation import GenerationConsumer
from vinery_serving.http.paths import OwnPaths
from vinery_serving.http.pooling import PoolingConsumer
from vinery_serving.http.starts import BeginInTurns
from vinery_serving.runtime.runtime import Runtime


def api_application(runtime: Runtime, rest: App) -> OwnPaths:
    """Return the endpoints of the API that bypass Django's middleware. Other paths go to `rest`."""
    generation = [
        re_path(
            rf"^(?P<tree>v1|v3)/{endpoint}/?$",
            GenerationConsumer.as_asgi(runtime=runtime, endpoint=endpoint),
        )
        for endpoint in Endpoint
    ]
    # Jina's and vLLM's clients send the last two at the root, and Cohere's under `/v2`.
    pooling = [
        re_path(path, PoolingConsumer.as_asgi(runtime=runtime, endpoint=endpoint))
        for endpoint, path in (
            (PoolingEndpoint.EMBEDDINGS, r"^(?P<tree>v1|v3)/embeddings/?$"),
            (PoolingEndpoint.RERANK, r"^(?:(?:(?P<tree>v1|v3)|v2)/)?rerank/?$"),
            (PoolingEndpoint.SCORE, r"^(?:(?P<tree>v1|v3)/)?score/?$"),
        )
    ]
    # vLLM has these paths at the root, OVMS under `/v1`.
    tokenizers = [
        re_path(
            rf"^(?:(?P<tree>v1|v3)/)?{name}/?$",
            TokensConsumer.as_asgi(runtime=runtime, job=name),
        )
        for name in ("tokenize", "detokenize")
    ]
    counting = [
        re_path(rf"^(?P<tree>v1|v3)/{name}/?$", TokensConsumer.as_asgi(runtime=runtime, job=name))
        for name in ("responses/input_tokens", "messages/count_tokens")
    ]
    # The casts: Channels routes to ASGI applications by Django's patterns, typed for views only.
    others = [
        re_path(r"^(?:v1|v3)/usage/me/?$", cast("Any", KeyUsage(runtime))),
        re_path(r"^version/?$", cast("Any", ConstantDocument(version))),
        re_path(r"^openapi\.json$", cast("Any", ConstantDocument(openapi))),
        re_path(r"", cast("Any", rest)),
    ]
    routes = URLRouter([*generation, *pooling, *tokenizers, *counting, *others])
    turns = BeginInTurns(routes, lambda scope: client_of(runtime.required_keys, scope))
    return OwnPaths(ApiEdge(turns))
