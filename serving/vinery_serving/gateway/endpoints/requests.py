"""Checks, reads and records one request with a JSON body, and ends it when the client leaves.

Channels' own HTTP consumer reads bodies without a limit and does not notice a disconnect while it
answers. `JsonEndpoint` limits the body, and waits for the disconnect beside the answer: the first
to end ends the other, and with the answer the engine's work.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, NoReturn, Self

import msgspec
from django.conf import settings

from vinery_accounts.keys.table import Caller
from vinery_accounts.models import Scope as KeyScope
from vinery_serving.core import errors
from vinery_serving.core.dialects import V1
from vinery_serving.core.media import InlineSource, MediaPart
from vinery_serving.core.memory import Memory
from vinery_serving.core.tasks import ALL_TASKS, COMPACT, TASKS_OF_ENDPOINTS, Endpoint
from vinery_serving.gateway.endpoints import bodies, callers, edge
from vinery_serving.gateway.endpoints.notices import report_unused
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.memory import StoredMemory
from vinery_serving.gateway.preparing.prepared import Origin
from vinery_serving.gateway.reading.reading import RequestReader
from vinery_serving.gateway.reading.worker_jobs import Head, PreparedT, Reading
from vinery_serving.gateway.recording.record import RequestRecord, count_request
from vinery_serving.gateway.state.drain import Drain
from vinery_serving.gateway.state.runtime import Runtime

# The client's own id of its request, as in OpenAI's API.
_CLIENT_REQUEST_ID: Final = b"x-client-request-id"
_MAX_CLIENT_REQUEST_ID: Final = 512
# The endpoint that a key must be allowed to call. A count of tokens may tell of stored responses.
_NEEDED: Final[Mapping[str, Endpoint]] = {
    **{each: each for each in Endpoint},
    "responses/input_tokens": Endpoint.RESPONSES,
    **{f"stored {each}": each for each in (Endpoint.RESPONSES, Endpoint.CHAT)},
}
DETACHED_TIMEOUT_S: Final = 24 * 3600.0  # A background response may wait for all other requests
_MAX_SEARCHED_BYTES: Final = 2**20  # A larger body would take milliseconds of the event loop


class _Named(msgspec.Struct):
    model: str = ""


def _model_in(body: bytes) -> str:
    """Return the model that an invalid request names, for its record; empty if that is unknown."""
    try:
        return msgspec.json.decode(body[:_MAX_SEARCHED_BYTES], type=_Named).model
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""


@dataclass(eq=False, slots=True)
class ApiRequest:
    runtime: Runtime
    scope: edge.Scope
    send: edge.Send
    caller: Caller
    owner: Hashable  # one share of what web processes and worker processes do for clients
    claim: bodies.BodyClaim
    name: str  # of the endpoint
    has_started: bool = False  # whether a part of the answer was sent
    is_detached: bool = False  # the answer goes into the list of a background run, which stores it
    body: bytes = b""  # of a request whose conversation may be summarized
    memory: StoredMemory = field(init=False)

    @classmethod
    def of(cls, runtime: Runtime, scope: edge.Scope, send: edge.Send, name: str) -> Self:
        """Raises `InvalidKey`."""
        caller = callers.authenticate(runtime.required_keys, scope)
        owner = callers.address_of(scope) if caller.key_id is None else caller.key_id
        return cls(runtime, scope, send, caller, owner, bodies.api_bodies().claim(owner), name)

    def __post_init__(self) -> None:
        self.memory = StoredMemory(self.runtime, self.caller, self.id, self.claim.keep)

    @property
    def id(self) -> str:
        request_id: str = self.scope[edge.REQUEST_ID]
        return request_id

    @property
    def tree(self) -> str:
        tree: str | None = self.url.get("tree")
        return tree or V1.name

    @property
    def url(self) -> Mapping[str, Any]:
        """What the pattern of the endpoint names; None for what is optional."""
        named: Mapping[str, Any] = self.scope["url_route"]["kwargs"]
        return named

    @property
    def origin(self) -> Origin:
        lane = (self.caller.organization_id or 0, self.caller.key_id or 0)
        timeout_s = DETACHED_TIMEOUT_S if self.is_detached else settings.VINERY_REQUEST_TIMEOUT_S
        return Origin(timeout_s, self.id, lane)

    def engine(self, model: str | None) -> Engine:
        """Return the engine of a model. Raises `ServingError`, also for a key without the right to
        the model, and for a model that does something else."""
        tasks = TASKS_OF_ENDPOINTS.get(self.name, ALL_TASKS)
        return callers.permitted_engine(self.runtime.directory, self.caller, model, tasks)

    async def counted(self, model: str | None, headers: edge.Headers) -> Engine:
        """Return `engine`, and count the request for rate limits, which `headers` tell."""
        engine, limits = self.engine(model), self.runtime.limits
        headers += await count_request(limits, self.caller, engine.entry.name, self.id)
        return engine

    async def read(
        self,
        reading: Reading[PreparedT],
        body: bytes,
        admit: Callable[[Head], Awaitable[Engine]],
        record: RequestRecord | None = None,
    ) -> tuple[Engine, PreparedT]:
        """Read the body, and admit and prepare the request. Raises `ServingError`."""
        num_bytes = len(body)
        meter = Meter() if record is None else record.meter
        tree = "v2" if "v2" in self.url else self.tree
        memory = Memory(self.memory.keeps, None, self.memory.compaction)
        about = (tree, settings.VINERY_FINGERPRINT, memory)
        async with RequestReader(self.runtime.workers, self.owner, reading, body, about) as reader:
            try:
                self.memory.locks = record is not None
                head = await reader.parse(self.memory.read)
            except errors.InvalidRequest:
                if record is not None:
                    # The client gets the first error.
                    with contextlib.suppress(errors.UsageNotRecorded):
                        record.admit(model=self.scope[edge.DEPLOYMENT] or _model_in(body))
                raise
            engine = await admit(head)
            if record is not None and not head.is_low_tier:
                engine.replicas.announce()
            self.body = body if head.may_compact else b""

            async def fetch(parts: Sequence[MediaPart]) -> Mapping[int, InlineSource]:
                return await callers.fetch_media(
                    *(self.runtime, self.caller, parts, meter),
                    cover=lambda num: self.claim.cover(num_bytes + num),
                )

            return engine, await reader.prepare(engine, fetch, self.origin)

    async def send_json(self, body: bytes, headers: edge.Headers) -> None:
        await edge.send_whole(self.send, 200, [*edge.JSON, *headers], body)


def refuse_method(scope: edge.Scope, allowed: str = "POST") -> NoReturn:
    """Raises `UpgradeRefused` or `MethodNotAllowed`."""
    if (edge.header(scope, b"upgrade") or b"").lower() == b"websocket":
        raise errors.UpgradeRefused
    raise errors.MethodNotAllowed(scope["method"], allowed=allowed)


async def answer_body(
    request: ApiRequest,
    receive: edge.Receive,
    answer: Callable[[ApiRequest, Any], Coroutine[Any, Any, None]],
    *,
    has_body: bool = True,
) -> None:
    """Check the request, read its body, and answer until the client leaves. Raises `ServingError`
    while nothing has been sent."""
    with request.claim:
        try:
            needed = _NEEDED.get(request.name)
            callers.check_grants(
                request.caller, KeyScope.INFERENCE, callers.address_of(request.scope), needed
            )
            if not has_body:
                await _until_disconnect(answer(request, None), receive)
                return
            _check_type(request)
            # No variable of this frame keeps the body, which is forgotten when it is parsed.
            limits = bodies.BodyLimits(
                settings.VINERY_MAX_BODY_BYTES, settings.VINERY_BODY_TIMEOUT_S
            )
            with raising_shutdown(request.runtime.drain):
                body = await bodies.read_body(request.scope, receive, limits, request.claim)
            answering = answer(request, body)
            del body
        except bodies.ClientGone:
            _record_unread(request, None)
            return
        except errors.ServingError as error:
            _record_unread(request, error)
            raise
        await _until_disconnect(answering, receive)


# Runs a request that is prepared, and sends its answer. Raises `ServingError`.
Run = Callable[[ApiRequest, RequestRecord, Engine, PreparedT], Coroutine[Any, Any, None]]


class InBackground(Exception):
    """The client does not wait for the answer."""


@dataclass(frozen=True, slots=True)
class JsonEndpoint(Generic[PreparedT]):
    """A row of the table of endpoints: an ASGI application that answers `POST` with a JSON body and
    a key. The types of bodies and answers are in `protocols`."""

    path: str  # a pattern for `re_path`; its group `tree` names the dialect
    reading: Reading[PreparedT]
    run: Run[PreparedT] | None  # None: what `reading` returns is the answer
    runtime: Runtime
    # Answers a request of the background, whose body this is, and leaves the work to others.
    accept: Callable[[ApiRequest, bytes], Awaitable[None]] | None = None
    others: edge.App | None = None  # answers the other methods

    async def __call__(self, scope: edge.Scope, receive: edge.Receive, send: edge.Send) -> None:
        """Raises `ServingError` while nothing has been sent."""
        if scope["method"] != "POST":
            if self.others is None:
                refuse_method(scope)
            await self.others(scope, receive, send)
            return
        name = Endpoint.RESPONSES if self.reading.name == COMPACT else self.reading.name
        await answer_body(ApiRequest.of(self.runtime, scope, send, name), receive, self._answer)

    def _answer(self, request: ApiRequest, body: bytes) -> Coroutine[Any, Any, None]:
        """No coroutine, whose frame would keep the body for as long as the answer takes."""
        if self.run is not None:
            return self._answer_recorded(request, self.run, body)
        return self._answer_tokens(request, body)

    async def _answer_tokens(self, request: ApiRequest, body: bytes) -> None:
        headers: edge.Headers = []

        async def admit(head: Head) -> Engine:
            report_unused(head.unused, request.scope, self.runtime.traffic)
            return await request.counted(head.model, headers)

        with raising_shutdown(self.runtime.drain):
            _, answer = await request.read(self.reading, body, admit)
        assert isinstance(answer, bytes)
        await request.send_json(answer, headers)

    async def _answer_recorded(self, request: ApiRequest, run: Run[PreparedT], body: bytes) -> None:
        """Answer, and settle the usage record in every case."""
        record = new_record(request, body)

        async def admit(head: Head) -> Engine:
            if head.is_background:
                raise InBackground
            return admitted(request, record, head)

        with settling(request, record):
            _check_client_request_id(request.scope)
            try:
                engine, prepared = await request.read(self.reading, body, admit, record)
            except InBackground:
                record.forget()
                assert self.accept is not None
                await self.accept(request, body)
                return
            del body
            await run(request, record, engine, prepared)


def ending_of(request: ApiRequest, record: RequestRecord) -> errors.ServingError | None:
    """Return the error with which the server ends the request; None: its client has left."""
    return record.live.ending or request.runtime.drain.ending


@contextlib.contextmanager
def settling(request: ApiRequest, record: RequestRecord) -> Iterator[None]:
    """Settle the record with the error that ends the request. Raises the error with which the
    server ends a cancelled request."""
    try:
        yield
    except asyncio.CancelledError:
        if (ending := ending_of(request, record)) is None:
            raise
        record.fail(ending)
        raise ending from None
    except errors.ServingError as error:
        record.fail(error)
        raise
    except Exception:
        # Also a defect of the server settles the record. The edge logs it and answers this.
        record.fail(edge.server_failed())
        raise
    finally:
        record.leave()  # has an effect only if this task was cancelled
        request.memory.release()


def admitted(request: ApiRequest, record: RequestRecord, head: Head) -> Engine:
    """Admit the request, whose model the body names, or the path as Azure's clients do. Returns
    an engine of the model."""
    model = request.scope[edge.DEPLOYMENT] or head.model
    record.admit(
        model=model or "",
        is_streamed=head.is_streamed,
        mm_hashes=[part.sha256 for part in head.media if part.sha256],
        end_user=head.end_user,
        sent=head.sent,
    )
    replaced = () if head.model in (None, model) else ("model",)
    report_unused(head.unused, request.scope, request.runtime.traffic, *replaced)
    engine = request.engine(model)
    record.name_model(engine.entry.name)
    return engine


def new_record(
    request: ApiRequest, body: bytes = b"", lease_id: str | None = None
) -> RequestRecord:
    client_request_id = edge.header(request.scope, _CLIENT_REQUEST_ID) or b""
    return RequestRecord(
        request.runtime,
        request.caller,
        request_id=request.id,
        endpoint=Endpoint(request.name),
        dialect=request.tree,
        error_body=partial(edge.error_body, scope=request.scope),
        address=callers.address_of(request.scope),
        client_request_id=client_request_id.decode("ascii", "ignore"),
        body=body,
        lease_id=lease_id,
    )


def _record_unread(request: ApiRequest, error: errors.ServingError | None) -> None:
    """Record a request whose body was not read; `error` None: the client disconnected."""
    if request.name not in TASKS_OF_ENDPOINTS:
        return  # it counts for rate limits on requests alone
    record = new_record(request)
    with contextlib.suppress(errors.UsageNotRecorded):  # the client gets the first error
        record.admit()
    if error is None:
        record.leave()
    else:
        record.fail(error)


def _check_type(request: ApiRequest) -> None:
    """Raises `UnsupportedMediaType` for a content type that is not JSON."""
    content_type = edge.header(request.scope, b"content-type") or b""
    media = content_type.partition(b";")[0].strip().lower()
    if media and media not in (b"application/json", b"text/json") and not media.endswith(b"+json"):
        raise errors.UnsupportedMediaType(
            "The request body must be JSON. Send it with `Content-Type: application/json`."
        )


def _check_client_request_id(scope: edge.Scope) -> None:
    """Raises `InvalidRequest` for an id that OpenAI would refuse."""
    given = edge.header(scope, _CLIENT_REQUEST_ID)
    if given is not None and not (given.isascii() and len(given) <= _MAX_CLIENT_REQUEST_ID):
        raise errors.InvalidRequest(
            "The header `x-client-request-id` must be ASCII, and no longer than "
            f"{_MAX_CLIENT_REQUEST_ID} characters."
        )


@contextlib.contextmanager
def raising_shutdown(drain: Drain) -> Iterator[None]:
    """Raises `ShuttingDown` where the end of this process cancels a request."""
    try:
        yield
    except asyncio.CancelledError:
        if (ending := drain.ending) is None:
            raise
        raise ending from None


async def _until_disconnect(answer: Coroutine[Any, Any, None], receive: edge.Receive) -> None:
    """Await the answer, and cancel it when the client disconnects. The answer runs in this task: a
    second task, and a wait for two, would cost a short answer more than the parsing."""
    task = asyncio.current_task()
    assert task is not None
    is_answering, has_left = True, False

    def leave(_: object) -> None:
        nonlocal has_left
        if is_answering:
            has_left = True
            task.cancel()

    disconnect = asyncio.create_task(bodies.disconnected(receive), name="disconnect")
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
