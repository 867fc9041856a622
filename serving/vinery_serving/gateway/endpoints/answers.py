"""The table of endpoints with JSON bodies, and how each sends its answer."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, Final, cast

from channels.routing import URLRouter
from django.urls import re_path

from vinery_serving.core.errors import NotFound
from vinery_serving.core.events import TokenCounts
from vinery_serving.core.pooling import PoolingDraft
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway.endpoints import edge
from vinery_serving.gateway.endpoints.background import runs_of
from vinery_serving.gateway.endpoints.callers import client_of
from vinery_serving.gateway.endpoints.documents import (
    constant,
    document_of,
    key_usage,
    list_models,
    openapi,
    retrieve_model,
    tokenizer_info,
    version,
)
from vinery_serving.gateway.endpoints.requests import ApiRequest, JsonEndpoint
from vinery_serving.gateway.endpoints.stored import StoredEndpoint, chat_list, stored_endpoints
from vinery_serving.gateway.endpoints.streaming import generate, send_whole
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.reading.worker_jobs import GENERATION, POOLING, TOKENS
from vinery_serving.gateway.recording.record import RequestRecord
from vinery_serving.gateway.running.generate import pool
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.pooling import PoolingExchange

# Parts of a long answer that are written before other requests get a turn.
_PARTS_AT_ONCE: Final = 16


async def embed(
    request: ApiRequest,
    record: RequestRecord,
    engine: Engine,
    read: tuple[PoolingExchange, PoolingDraft],
) -> None:
    exchange, draft = read
    model = engine.entry.name
    record.meter.tokens = TokenCounts(draft.num_tokens)
    await record.reservation.reserve(model, record.meter.tokens)
    vectors = await pool(draft, engine, record.meter, request.origin)
    # The vectors stay in memory until the client has read the answer.
    request.claim.cover(sum(map(len, (*draft.texts, *vectors))))
    parts = exchange.body(draft, vectors, model, request.id)
    first, second = _some(parts), _some(parts)
    if not second:
        await send_whole(request, record, first)
        return
    headers = [*edge.JSON, *record.reservation.headers]
    request.has_started = True
    whole = chain((first, second), iter(partial(_some, parts), b""))
    await edge.send_parts(request.send, headers, _recorded(record, whole))


def _some(parts: Iterator[bytes]) -> bytes:
    return b"".join(islice(parts, _PARTS_AT_ONCE))


def _recorded(record: RequestRecord, parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        record.add_answer(part)
        yield part
    record.succeed()


def _endpoints(runtime: Runtime) -> Iterator[JsonEndpoint[Any] | StoredEndpoint]:
    """The table of endpoints. vLLM has the tokenizer endpoints at the root, OVMS under `/v1`.
    Jina's and vLLM's clients send `rerank` and `score` to the root, Cohere's to `/v2`."""
    tree, optional = r"^(?P<tree>v1|v3)/", r"^(?:(?P<tree>v1|v3)/)?"
    accepts = {str(Endpoint.RESPONSES): runs_of(runtime).accept}
    others = {str(Endpoint.CHAT): chat_list(runtime)}
    for name, reading in GENERATION.items():
        more = accepts.get(name), others.get(name)
        yield JsonEndpoint(rf"{tree}{name}/?$", reading, generate, runtime, *more)
    for path, endpoint in (
        (rf"{tree}embeddings/?$", Endpoint.EMBEDDINGS),
        (r"^(?:(?:(?P<tree>v1|v3)|(?P<v2>v2))/)?rerank/?$", Endpoint.RERANK),
        (rf"{optional}score/?$", Endpoint.SCORE),
    ):
        yield JsonEndpoint(path, POOLING[endpoint], embed, runtime)
    for path, name in (
        (rf"{optional}tokenize/?$", "tokenize"),
        (rf"{optional}detokenize/?$", "detokenize"),
        (rf"{tree}responses/input_tokens/?$", "responses/input_tokens"),
        (rf"{tree}messages/count_tokens/?$", "messages/count_tokens"),
    ):
        yield JsonEndpoint(path, TOKENS[name], None, runtime)
    yield from stored_endpoints(runtime)


async def _unknown_route(scope: edge.Scope, receive: edge.Receive, send: edge.Send) -> None:
    """A wrong URL is a common first mistake."""
    method, path = scope["method"], scope["path"]
    raise NotFound(f"Not found: {method} {path}. GET /openapi.json lists the endpoints.")


def api_application(runtime: Runtime, rest: edge.App) -> edge.App:
    """Return the endpoints of the API that bypass Django's middleware. Other paths go to `rest`."""
    documents = (
        (r"^(?:v1|v3)/usage/me/?$", key_usage),
        (r"^(?:v1|v3)/models/?$", list_models),
        # Names may contain slashes, which clients percent-encode and servers decode.
        (r"^(?:v1|v3)/models/(?P<name>.+)$", retrieve_model),
        (r"^(?:(?:v1|v3)/)?tokenizer_info/?$", tokenizer_info),  # vLLM has it at the root
    )
    others: list[tuple[str, edge.App]] = [
        *((path, document_of(partial(read, runtime))) for path, read in documents),
        (r"^version/?$", constant(version)),
        (r"^openapi\.json$", constant(openapi)),
        (r"^(?:v1|v3)(?:/.*)?$", _unknown_route),
        (r"", rest),
    ]
    own = [(endpoint.path, endpoint) for endpoint in _endpoints(runtime)]
    # The casts: Channels routes to ASGI applications by Django's patterns, typed for views only.
    routes = URLRouter([re_path(path, cast("Any", app)) for path, app in (*own, *others)])
    turns = edge.BeginInTurns(routes, lambda scope: client_of(runtime.required_keys, scope))
    return edge.with_own_paths(edge.ApiEdge(turns))
