"""The table of endpoints with JSON bodies, and how each sends its answer."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, cast

from channels.routing import URLRouter
from django.urls import re_path

from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import Completed, Event, Failed, TokenCounts
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.pooling import PoolingDraft
from vinery_serving.core.result import ResultBuilder
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway.endpoints.callers import client_of
from vinery_serving.gateway.endpoints.documents import constant, key_usage, openapi, version
from vinery_serving.gateway.endpoints.edge import JSON, ApiEdge, App, BeginInTurns, with_own_paths
from vinery_serving.gateway.endpoints.notices import report_clamp, report_unenforced
from vinery_serving.gateway.endpoints.requests import ApiRequest, JsonEndpoint, ending_of
from vinery_serving.gateway.endpoints.stored import StoredEndpoint, stored_endpoints
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.memory.keeping import check_room, keep
from vinery_serving.gateway.preparing.prepared import Draft, PreparedRequest
from vinery_serving.gateway.reading.worker_jobs import GENERATION, POOLING, TOKENS
from vinery_serving.gateway.recording.record import RequestRecord
from vinery_serving.gateway.running.generate import pool, stream, whole
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.common.encoding import Exchange
from vinery_serving.protocols.pooling import PoolingExchange

# Parts of a long answer that are written before other requests get a turn.
_PARTS_AT_ONCE: Final = 16
# No proxy may buffer or compress a stream.
_STREAM: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


async def generate(
    request: ApiRequest, record: RequestRecord, engine: Engine, read: tuple[Exchange, Draft]
) -> None:
    exchange, draft = read
    asked = draft.request
    identity = AnswerIdentity.new(engine.entry.name, requested_id=asked.handling.answer_id)
    report_clamp(asked.stopping.max_tokens_param, draft.clamped_to, request.scope)
    prepared = PreparedRequest.of(draft, engine, record.meter, identity.token)
    record.note_media()
    if exchange.to_keep is not None:
        await check_room(request.runtime, request.caller)
    # Prompts and pixels stay in memory: another engine may have to go on with the request.
    request.claim.keep(prepared.num_bytes)
    await record.reservation.reserve(prepared)
    if asked.is_streamed:
        await _Stream(request, record, exchange, identity).send(prepared)
        return
    result = await whole(prepared, record.reservation.token_source)
    body = exchange.body(identity, result)
    if not await _is_kept(request, exchange, identity, body):
        body = exchange.body(identity, replace(result, is_kept=False))
    await _send_whole(request, record, body)


async def _is_kept(
    request: ApiRequest, exchange: Exchange, identity: AnswerIdentity, body: bytes
) -> bool:
    """Store the whole answer if it is to be kept. Returns False if that failed."""
    if (kept := exchange.to_keep) is None:
        return True
    return await keep(request.runtime, request.caller, request.id, identity, kept, body)


async def embed(
    request: ApiRequest,
    record: RequestRecord,
    engine: Engine,
    read: tuple[PoolingExchange, PoolingDraft],
) -> None:
    """Answer with vectors or scores."""
    exchange, draft = read
    model = engine.entry.name
    record.meter.tokens = TokenCounts(draft.num_tokens)
    await record.reservation.reserve_input(model, draft.num_tokens)
    result = await pool(draft, engine, record.meter, request.origin)
    # The vectors stay in memory until the client has read the answer.
    request.claim.cover(sum(map(len, (*draft.texts, *result.vectors))))
    await _send_parts(request, record, exchange.body(result, model, request.id))


async def _send_parts(request: ApiRequest, record: RequestRecord, parts: Iterator[bytes]) -> None:
    """Send a short answer whole, and write a long one as fast as the client reads."""
    body, following = _some(parts), _some(parts)
    if not following:
        await _send_whole(request, record, body)
        return
    headers = [*JSON, *record.reservation.headers]
    await request.send({"type": "http.response.start", "status": 200, "headers": headers})
    request.has_started = True
    while body:
        record.add_answer(body)
        if not following:
            record.succeed()
        record.live.sending_since = time.monotonic()
        part = {"type": "http.response.body", "body": body, "more_body": bool(following)}
        await request.send(part)
        record.live.sending_since = None
        await asyncio.sleep(0)
        body, following = following, _some(parts)


def _some(parts: Iterator[bytes]) -> bytes:
    return b"".join(islice(parts, _PARTS_AT_ONCE))


async def _send_whole(request: ApiRequest, record: RequestRecord, body: bytes) -> None:
    record.add_answer(body)
    headers = record.reservation.headers  # before the record is settled
    record.succeed()
    report_unenforced(record.meter.unenforced, request.scope, request.runtime.traffic)
    await request.send_json(body, headers)


class _Stream:
    def __init__(
        self,
        request: ApiRequest,
        record: RequestRecord,
        exchange: Exchange,
        identity: AnswerIdentity,
    ) -> None:
        self._request = request
        self._record = record
        self._exchange, self._identity = exchange, identity
        self._encoder = exchange.encoder(identity)
        # All events, of an answer that is kept.
        self._events: list[Event] | None = None if exchange.to_keep is None else []
        self._keep_alive = exchange.keep_alive

    async def send(self, prepared: PreparedRequest) -> None:
        request, record = self._request, self._record
        batches = stream(prepared, record.reservation.token_source)
        async with contextlib.aclosing(batches):
            try:
                async for events in batches:
                    # No keep-alive begins the answer while an engine is connected: a refusal by the
                    # engine may still set the status.
                    is_waking = not prepared.engine.replicas.is_connected
                    if events or is_waking or request.has_started:
                        await self._send(events)
            except ServingError as error:
                if not request.has_started:
                    raise
                await self._send([Failed(error)])
            except asyncio.CancelledError:
                # The server ends the request, and the client keeps up with the answer.
                ending = ending_of(request, record)
                is_sending = record.live.sending_since is not None
                if ending is None or is_sending or not request.has_started:
                    raise
                await self._send([Failed(ending)])

    async def _keep(self, events: Sequence[Event]) -> Sequence[Event]:
        """Collect the events of an answer that is kept, and store the answer before its end."""
        assert self._events is not None
        self._events += events
        if not events or not isinstance(last := events[-1], Completed):
            return events
        builder = ResultBuilder()
        for event in self._events:
            builder.feed(event)
        body = self._exchange.body(self._identity, builder.result())
        is_kept = await _is_kept(self._request, self._exchange, self._identity, body)
        return events if is_kept else [*events[:-1], replace(last, is_kept=False)]

    async def _send(self, events: Sequence[Event]) -> None:
        """Runs for all tokens, so it calls the server directly."""
        request, record = self._request, self._record
        if self._events is not None:
            events = await self._keep(events)
        if not request.has_started:
            headers = [*_STREAM, *record.reservation.headers]
            start = {"type": "http.response.start", "status": 200, "headers": headers}
            report_unenforced(record.meter.unenforced, request.scope, request.runtime.traffic)
            await request.send(start)
            request.has_started = True
        frames = b"".join([self._encoder.feed(event) for event in events])
        if events and not frames:
            return
        record.add_answer(frames)
        last = events[-1] if events else None
        # Settled before the send: some servers report a disconnect before this task continues.
        if isinstance(last, Completed):
            record.succeed()
        elif isinstance(last, Failed):
            record.fail(last.error)
        is_last = isinstance(last, Completed | Failed)
        body = frames or self._keep_alive
        record.live.sending_since = time.monotonic()
        await request.send({"type": "http.response.body", "body": body, "more_body": not is_last})
        record.live.sending_since = None


def _endpoints(runtime: Runtime, others: App) -> Iterator[JsonEndpoint[Any] | StoredEndpoint]:
    """The table of endpoints. vLLM has the tokenizer endpoints at the root, OVMS under `/v1`.
    Jina's and vLLM's clients send `rerank` and `score` to the root, Cohere's to `/v2`."""
    tree, optional = r"^(?P<tree>v1|v3)/", r"^(?:(?P<tree>v1|v3)/)?"
    for name, reading in GENERATION.items():
        listed = others if name == Endpoint.CHAT else None  # stored chats
        yield JsonEndpoint(rf"{tree}{name}/?$", reading, generate, runtime, listed)
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
    yield from stored_endpoints(runtime, others)


def api_application(runtime: Runtime, rest: App) -> App:
    """Return the endpoints of the API that bypass Django's middleware. Other paths go to `rest`."""
    others: list[tuple[str, App]] = [
        (r"^(?:v1|v3)/usage/me/?$", key_usage(runtime)),
        (r"^version/?$", constant(version)),
        (r"^openapi\.json$", constant(openapi)),
        (r"", rest),
    ]
    own = [(endpoint.path, endpoint) for endpoint in _endpoints(runtime, rest)]
    # The casts: Channels routes to ASGI applications by Django's patterns, typed for views only.
    routes = URLRouter([re_path(path, cast("Any", app)) for path, app in (*own, *others)])
    turns = BeginInTurns(routes, lambda scope: client_of(runtime.required_keys, scope))
    return with_own_paths(ApiEdge(turns))
