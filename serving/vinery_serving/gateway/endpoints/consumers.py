"""The endpoints with JSON bodies, generation and a model's tokenizer, and their routes.

Channels' own HTTP consumer reads bodies without a limit and does not notice a disconnect while
it answers. `JsonConsumer` limits the body, and waits for the disconnect beside the answer: the
first to end ends the other, and with the answer the engine's work.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final, NamedTuple, cast

from channels.generic.http import AsyncHttpConsumer
from channels.routing import URLRouter
from django.conf import settings
from django.urls import re_path

from vinery_accounts.keys.table import Caller
from vinery_accounts.models import Scope as KeyScope
from vinery_serving.core.dialects import V1
from vinery_serving.core.errors import (
    InvalidRequest,
    MethodNotAllowed,
    ServingError,
    UnsupportedMediaType,
    UsageNotRecorded,
)
from vinery_serving.core.events import Completed, Event, Failed, TokenCounts
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.media import InlineSource, MediaPart
from vinery_serving.core.request import Endpoint
from vinery_serving.core.tasks import ALL_TASKS, GENERATION_TASKS, TASKS_OF_ENDPOINTS, Task
from vinery_serving.gateway.endpoints.bodies import BodyLimits, ClientGone, api_bodies, read_body
from vinery_serving.gateway.endpoints.callers import (
    address_of,
    authenticate,
    authorization_of,
    client_of,
    grant_errors,
    permitted_engine,
)
from vinery_serving.gateway.endpoints.documents import ConstantDocument, KeyUsage, openapi, version
from vinery_serving.gateway.endpoints.edge import (
    JSON,
    REQUEST_ID,
    ApiEdge,
    App,
    Receive,
    Scope,
    Send,
    error_body,
    header,
    send_whole,
    server_failed,
)
from vinery_serving.gateway.endpoints.notices import report_clamp, report_unenforced, report_unused
from vinery_serving.gateway.endpoints.paths import DEPLOYMENT, OwnPaths
from vinery_serving.gateway.endpoints.starts import BeginInTurns
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.preparing.prepare import prepare
from vinery_serving.gateway.preparing.prepared import PreparedRequest
from vinery_serving.gateway.reading.reading import (
    GenerationReader,
    Head,
    InProcess,
    answer_tokens,
    read_pooling,
)
from vinery_serving.gateway.recording.media import CallerMedia
from vinery_serving.gateway.recording.record import RequestRecord
from vinery_serving.gateway.recording.reservation import count_request
from vinery_serving.gateway.running.generate import stream, whole
from vinery_serving.gateway.running.pooling import PreparedPooling, pool
from vinery_serving.gateway.state.drain import Drain
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols import parse
from vinery_serving.protocols.common.exchange import Encoder, Exchange
from vinery_serving.protocols.pooling.common import PoolingExchange

# The client's own id of its request, as in OpenAI's API.
_CLIENT_REQUEST_ID: Final = b"x-client-request-id"
_MAX_CLIENT_REQUEST_ID: Final = 512
# Parts of a long answer that are written before other requests get a turn.
_PARTS_AT_ONCE: Final = 16
_IN_PROCESS: Final = InProcess(parse, prepare)
# No proxy may buffer or compress a stream.
_STREAM: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class _Answering(NamedTuple):
    """How a request is answered."""

    exchange: Exchange
    identity: AnswerIdentity


class JsonConsumer(AsyncHttpConsumer, ABC):  # type: ignore[misc]
    """Answers `POST` with a JSON body and a key."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Raises `ServingError` while nothing has been sent."""
        self.scope, self.base_send = scope, send
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], allowed="POST")
        authorization = authorization_of(scope["headers"])
        caller = authenticate(self._runtime.required_keys, scope, authorization)
        # One share of what web processes and worker processes do for clients.
        self._owner = address_of(scope) if caller.key_id is None else caller.key_id
        with api_bodies().claim(self._owner) as claim:
            self._claim = claim
            try:
                self._check_grants(caller)
                _check_media_type(header(scope, b"content-type"))
                # No variable of this frame keeps the body, which is forgotten when it is parsed.
                with _ended_by(self._runtime.drain):
                    body = await read_body(scope, receive, _body_limits(), claim)
                answer = self._answer(caller, body)
                del body
            except ClientGone:
                self._record_unread(caller, None)
                return
            except ServingError as error:
                self._record_unread(caller, error)
                raise
            await _until_disconnect(answer, receive)

    def _check_grants(self, caller: Caller) -> None:
        """Raises `NotPermitted` for a key without the right to this endpoint."""
        with grant_errors():
            caller.grants.check_scope(KeyScope.INFERENCE)
            caller.grants.check_address(address_of(self.scope))

    def _engine(self, caller: Caller, model: str | None) -> Engine:
        """The engine of a model. Raises `ServingError`, also for a key without the right to the
        model."""
        return permitted_engine(self._runtime.directory, caller, model, self._tasks)

    @property
    def _tasks(self) -> Set[Task]:
        """What the model must do, one of these."""
        return ALL_TASKS

    @property
    def _tree(self) -> str:
        tree: str | None = self.scope["url_route"]["kwargs"].get("tree")
        return tree or V1.name

    async def _send_json(self, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        await send_whole(self.base_send, 200, [*JSON, *headers], body)

    def _record_unread(self, caller: Caller, error: ServingError | None) -> None:
        """Record a request whose body was not read: it was refused with `error`, or the client
        disconnected (None)."""

    @abstractmethod
    async def _answer(self, caller: Caller, body: bytes) -> None:
        """Send the answer. Cancelled when the client disconnects. Raises `ServingError`."""


class TokensConsumer(JsonConsumer):
    """Answers an endpoint of a model's tokenizer: `POST /tokenize`, with vLLM's bodies or with
    OVMS's, `/detokenize`, as vLLM does, `{tree}/responses/input_tokens`, as OpenAI does, and
    `{tree}/messages/count_tokens`, as Anthropic does. They have no usage records, and count for
    rate limits on requests alone."""

    def __init__(self, runtime: Runtime, job: str) -> None:
        super().__init__(runtime)
        self._job = job

    async def _answer(self, caller: Caller, body: bytes) -> None:
        headers: list[tuple[bytes, bytes]] = []

        async def engine_of(head: Head) -> Engine:
            report_unused(head.unused, self.scope, self._runtime.traffic)
            engine = self._engine(caller, head.model)
            limits, request_id = self._runtime.limits, self.scope[REQUEST_ID]
            headers.extend(await count_request(limits, caller, engine.entry.name, request_id))
            return engine

        workers, key = self._runtime.workers, self._owner
        media = CallerMedia(
            self._runtime, caller, Meter(), lambda num: self._claim.cover(len(body) + num)
        )
        with _ended_by(self._runtime.drain):
            answer = await answer_tokens(
                workers, key, self._job, body, self._tree, engine_of, media.fetch
            )
        await self._send_json(answer, headers)


class RecordedConsumer(JsonConsumer):
    """Answers `POST {tree}/{endpoint}`, and writes one usage record of each request."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint) -> None:
        super().__init__(runtime)
        self._named = endpoint
        self._has_started = False  # the answer

    def _check_grants(self, caller: Caller) -> None:
        super()._check_grants(caller)
        with grant_errors():
            caller.grants.check_endpoint(self._named)

    def _admitted(self, record: RequestRecord, caller: Caller, head: Head) -> Engine:
        """Admit the request, whose model the body names, or the path as Azure's clients do. Returns
        an engine of the model."""
        model = self.scope[DEPLOYMENT] or head.model
        hashes = [part.sha256 for part in head.media if part.sha256]
        record.admit(
            model=model or "",
            is_streamed=head.is_streamed,
            mm_hashes=hashes,
            end_user=head.end_user,
        )
        replaced = () if head.model in (None, model) else ("model",)
        report_unused(head.unused, self.scope, self._runtime.traffic, *replaced)
        engine = self._engine(caller, model)
        record.name_model(engine.entry.name)
        return engine

    def _record_unread(self, caller: Caller, error: ServingError | None) -> None:
        record = self._new_record(caller)
        with contextlib.suppress(UsageNotRecorded):  # the client gets the first error
            record.admit()
        if error is None:
            record.leave()
        else:
            record.fail(error)

    async def _answer(self, caller: Caller, body: bytes) -> None:
        """Answer, and settle the usage record in every case."""
        record = self._new_record(caller, body)
        try:
            _check_client_request_id(self.scope)
            serving = self._serve(record, caller, body)
            del body  # it may be large, and the answer may take minutes
            await serving
        except asyncio.CancelledError:
            ending = self._ending_of(record)
            if ending is None:
                raise
            record.fail(ending)
            if not self._has_started:
                raise ending from None
        except ServingError as error:
            record.fail(error)
            raise
        except Exception:
            # Also a defect of the server settles the record. The edge logs it and answers this.
            record.fail(server_failed())
            raise
        finally:
            record.leave()  # has an effect only if this task was cancelled

    @abstractmethod
    async def _serve(self, record: RequestRecord, caller: Caller, body: bytes) -> None:
        """Run the request and send its answer. Raises `ServingError`."""

    def _ending_of(self, record: RequestRecord) -> ServingError | None:
        """The error with which the server ends the request; None: its client has left."""
        return record.live.ending or self._runtime.drain.ending

    def _new_record(self, caller: Caller, body: bytes = b"") -> RequestRecord:
        return RequestRecord(
            self._runtime,
            caller,
            request_id=self.scope[REQUEST_ID],
            endpoint=self._named,
            dialect=self._tree,
            error_body=partial(error_body, scope=self.scope),
            address=address_of(self.scope),
            client_request_id=(header(self.scope, _CLIENT_REQUEST_ID) or b"").decode(
                "ascii", "ignore"
            ),
            body=body,
        )


class PoolingConsumer(RecordedConsumer):
    """Answers `/embeddings`, `/rerank` and `/score`."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint) -> None:
        super().__init__(runtime, endpoint)
        self._endpoint = endpoint

    async def _serve(self, record: RequestRecord, caller: Caller, body: bytes) -> None:
        exchange, prepared = await self._prepare(record, caller, body)
        del body
        await record.reservation.reserve_input(
            prepared.engine.entry.name, prepared.draft.num_tokens
        )
        result = await pool(prepared)
        model, request_id = prepared.engine.entry.name, self.scope[REQUEST_ID]
        parts: list[bytes] = []
        for number, part in enumerate(exchange.body(result, model, request_id), 1):
            parts.append(part)
            if number % _PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        answer = b"".join(parts)
        record.add_answer(answer)
        headers = record.reservation.headers  # before the record is settled
        record.succeed()
        await self._send_json(answer, headers)

    async def _prepare(
        self, record: RequestRecord, caller: Caller, body: bytes
    ) -> tuple[PoolingExchange, PreparedPooling]:
        """Read the body, admit the request, and tokenize its texts."""
        engine: Engine | None = None

        async def engine_of(head: Head) -> Engine:
            nonlocal engine
            engine = self._admitted(record, caller, head)
            return engine

        workers, endpoint = self._runtime.workers, self._endpoint
        is_v2 = "v2" in self.scope["url_route"]["kwargs"]
        reading = read_pooling(workers, self._owner, endpoint, body, engine_of, is_v2=is_v2)
        exchange, draft = await reading
        assert engine is not None
        record.meter.tokens = TokenCounts(draft.num_tokens)
        prepared = PreparedPooling(
            draft,
            engine,
            record.meter,
            deadline_s=settings.VINERY_REQUEST_TIMEOUT_S,
            request_id=self.scope[REQUEST_ID],
            lane=(caller.organization_id or 0, caller.key_id or 0),
        )
        return exchange, prepared

    @property
    def _tasks(self) -> Set[Task]:
        return TASKS_OF_ENDPOINTS[self._endpoint]


class GenerationConsumer(RecordedConsumer):
    """Answers an endpoint that generates text."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint) -> None:
        super().__init__(runtime, endpoint)
        self._endpoint = endpoint
        self._keep_alive = b""

    @property
    def _tasks(self) -> Set[Task]:
        return GENERATION_TASKS

    async def _serve(self, record: RequestRecord, caller: Caller, body: bytes) -> None:
        answering, prepared = await self._prepare(record, caller, body)
        del body
        # They stay in memory: another engine may have to go on with the request.
        self._claim.keep(prepared.num_bytes)
        await self._run(record, answering, prepared)

    async def _prepare(
        self, record: RequestRecord, caller: Caller, body: bytes
    ) -> tuple[_Answering, PreparedRequest]:
        """Read the body, admit the request, and render its prompt."""
        reading = GenerationReader(self._runtime.workers, self._owner, len(body), _IN_PROCESS)
        async with reading as reader:
            fingerprint = settings.VINERY_FINGERPRINT
            head = await reader.parse(body, self._endpoint, self._tree, fingerprint)
            engine = self._admitted(record, caller, head)
            identity = AnswerIdentity.new(engine.entry.name, requested_id=head.answer_id)
            media = CallerMedia(
                self._runtime, caller, record.meter, lambda num: self._claim.cover(len(body) + num)
            )

            async def fetch(parts: Sequence[MediaPart]) -> Mapping[int, InlineSource]:
                await record.reservation.refuse_media(engine.entry.name, len(parts))
                return await media.fetch(parts)

            exchange, draft = await reader.prepare(
                engine,
                fetch,
                deadline_s=settings.VINERY_REQUEST_TIMEOUT_S,
                request_id=self.scope[REQUEST_ID],
                lane=(caller.organization_id or 0, caller.key_id or 0),
            )
        report_clamp(draft.request.stopping.max_tokens_param, draft.clamped_to, self.scope)
        prepared = PreparedRequest.of(draft, engine, record.meter, identity.token)
        record.note_media()
        return _Answering(exchange, identity), prepared

    async def _run(
        self, record: RequestRecord, answering: _Answering, prepared: PreparedRequest
    ) -> None:
        exchange, identity = answering.exchange, answering.identity
        reservation = record.reservation
        await reservation.reserve(prepared)
        if exchange.request.is_streamed:
            self._keep_alive = exchange.keep_alive
            await self._stream(record, exchange.encoder(identity), prepared)
        else:
            body = exchange.body(identity, await whole(prepared, reservation.token_source))
            record.add_answer(body)
            headers = reservation.headers  # before the record is settled
            record.succeed()
            report_unenforced(record.meter.unenforced, self.scope, self._runtime.traffic)
            await self._send_json(body, headers)

    async def _stream(
        self, record: RequestRecord, encoder: Encoder, prepared: PreparedRequest
    ) -> None:
        batches = stream(prepared, record.reservation.token_source)
        async with contextlib.aclosing(batches):
            try:
                async for events in batches:
                    # Before the answer begins, only a model that wakes leaves the status to it:
                    # one that has the request may still refuse it.
                    is_waking = not prepared.engine.replicas.is_connected
                    if events or is_waking or self._has_started:
                        await self._send_events(record, encoder, events)
            except ServingError as error:
                if not self._has_started:
                    raise
                await self._send_events(record, encoder, [Failed(error)])
            except asyncio.CancelledError:
                # The server ends the request while its client waits, and is not behind itself.
                ending = self._ending_of(record)
                is_sending = record.live.sending_since is not None
                if ending is None or is_sending or not self._has_started:
                    raise
                await self._send_events(record, encoder, [Failed(ending)])

    async def _send_events(
        self, record: RequestRecord, encoder: Encoder, events: Sequence[Event]
    ) -> None:
        """Runs for all tokens, so it calls the server directly."""
        if not self._has_started:
            headers = [*_STREAM, *record.reservation.headers]
            start = {"type": "http.response.start", "status": 200, "headers": headers}
            report_unenforced(record.meter.unenforced, self.scope, self._runtime.traffic)
            await self.base_send(start)
            self._has_started = True
        frames = b"".join([encoder.feed(event) for event in events])
        if events and not frames:
            return
        record.add_answer(frames)
        last = events[-1] if events else None
        # Before it is sent: some servers report a disconnect before this task continues.
        if isinstance(last, Completed):
            record.succeed()
        elif isinstance(last, Failed):
            record.fail(last.error)
        is_last = isinstance(last, Completed | Failed)
        body = frames or self._keep_alive
        record.live.sending_since = time.monotonic()
        await self.base_send({"type": "http.response.body", "body": body, "more_body": not is_last})
        record.live.sending_since = None


@contextlib.contextmanager
def _ended_by(drain: Drain) -> Iterator[None]:
    """Raises `ShuttingDown` where the end of this process cancels a request."""
    try:
        yield
    except asyncio.CancelledError:
        if (ending := drain.ending) is None:
            raise
        raise ending from None


def _check_media_type(content_type: bytes | None) -> None:
    """Raises `UnsupportedMediaType` for a content type that is not JSON."""
    media = (content_type or b"").partition(b";")[0].strip().lower()
    if media and media not in (b"application/json", b"text/json") and not media.endswith(b"+json"):
        raise UnsupportedMediaType(
            "The request body must be JSON. Send it with `Content-Type: application/json`."
        )


def _check_client_request_id(scope: Scope) -> None:
    """Raises `InvalidRequest` for an id that OpenAI would refuse."""
    given = header(scope, _CLIENT_REQUEST_ID)
    if given is not None and not (given.isascii() and len(given) <= _MAX_CLIENT_REQUEST_ID):
        raise InvalidRequest(
            "The header `x-client-request-id` must be ASCII, and no longer than "
            f"{_MAX_CLIENT_REQUEST_ID} characters."
        )


def _body_limits() -> BodyLimits:
    return BodyLimits(settings.VINERY_MAX_BODY_BYTES, settings.VINERY_BODY_TIMEOUT_S)


async def _until_disconnect(answer: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Await the answer, and cancel it when the client disconnects.

    It runs in this task: another one, and a wait for two, would cost a short answer more than its
    parsing.
    """
    task = asyncio.current_task()
    assert task is not None
    is_answering, has_left = True, False

    def leave(_: object) -> None:
        nonlocal has_left
        if is_answering:
            has_left = True
            task.cancel()

    disconnect = asyncio.create_task(_wait_for_disconnect(receive), name="disconnect")
    disconnect.add_done_callback(leave)
    try:
        await answer
    except asyncio.CancelledError:
        # Cancelled by this function only: the server may cancel the task, too.
        if not has_left or task.uncancel():
            raise
    finally:
        is_answering = False
        disconnect.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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
            (Endpoint.EMBEDDINGS, r"^(?P<tree>v1|v3)/embeddings/?$"),
            (Endpoint.RERANK, r"^(?:(?:(?P<tree>v1|v3)|(?P<v2>v2))/)?rerank/?$"),
            (Endpoint.SCORE, r"^(?:(?P<tree>v1|v3)/)?score/?$"),
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
