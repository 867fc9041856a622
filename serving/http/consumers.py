"""The doors for JSON bodies, and that to generation: one consumer for all three endpoints.

Channels' own HTTP consumer reads bodies without a limit and does not see a client leave
while it answers. This one caps the body, and runs the answer beside a watch for the
disconnect: whichever ends first ends the other, and with it the engine's work.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Final

from channels.generic.http import AsyncHttpConsumer
from django.conf import settings

from accounts.keys.table import Caller
from accounts.models import Scope as KeyScope
from serving.core.errors import (
    BodyTooLarge,
    InvalidRequest,
    MethodNotAllowed,
    ServingError,
    UnsupportedMediaType,
)
from serving.core.events import Completed, Event, Failed
from serving.core.ids import AnswerIdentity
from serving.core.request import DIALECTS, Endpoint
from serving.flow.directory import Engine
from serving.flow.generate import stream, whole
from serving.flow.prepared import PreparedRequest
from serving.flow.preparing import prepare
from serving.http.callers import address_of, as_errors, authenticate
from serving.http.edge import REQUEST_ID, Receive, Scope, Send, send_whole
from serving.protocols import parse
from serving.protocols.common.encoding import KEEP_ALIVE
from serving.protocols.common.exchange import Encoder, Exchange
from serving.requests.record import RequestRecord
from serving.runtime.runtime import Runtime

# How long a client may be silent in the middle of its body.
_BODY_TIMEOUT_S: Final = 60.0
# The client's own name for its request, as OpenAI takes it.
_CLIENT_REQUEST_ID: Final = b"x-client-request-id"
_MAX_CLIENT_REQUEST_ID: Final = 512
JSON: Final = [(b"content-type", b"application/json")]
# No proxy may hold a stream back or pack it.
_STREAM: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class JsonConsumer(AsyncHttpConsumer, ABC):  # type: ignore[misc]
    """Answers `POST` with a JSON body and a key."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Raises `ServingError` for the edge to tell, while nothing has been sent."""
        self.scope, self.base_send = scope, send
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], allowed="POST")
        caller = self._authenticate()
        try:
            self._check_grants(caller)
            _refuse_other_media(header(scope, b"content-type"))
            body = await _read_body(receive)
        except ClientGone:
            self._miss(caller, None)
            return
        except ServingError as error:
            self._miss(caller, error)
            raise
        answer = asyncio.create_task(self._answer(caller, body), name="answer")
        watch = asyncio.create_task(_wait_for_disconnect(receive), name="watch")
        try:
            await asyncio.wait([answer, watch], return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            answer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answer

    def _authenticate(self) -> Caller:
        return authenticate(self._runtime, self.scope, header(self.scope, b"authorization"))

    def _check_grants(self, caller: Caller) -> None:
        """Raises `NotPermitted` for a key that is not for this."""
        with as_errors():
            caller.grants.check_scope(KeyScope.INFERENCE)
            caller.grants.check_address(address_of(self.scope))

    def _engine(self, caller: Caller, model: str | None) -> Engine:
        """The engine of a model, if the key is for it. Raises `ServingError`."""
        engine = self._runtime.directory.find(model)
        with as_errors():
            caller.grants.check_model(engine.entry.name)
        return engine

    def _miss(self, caller: Caller, error: ServingError | None) -> None:
        """The body was not read: it was refused, or the client left in the middle of it."""

    @abstractmethod
    async def _answer(self, caller: Caller, body: bytes) -> None:
        """Answer. Cancelled when the client leaves. Raises `ServingError`."""


class GenerationConsumer(JsonConsumer):
    """Answers `POST {tree}/{endpoint}`; both come from the route."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint) -> None:
        super().__init__(runtime)
        self._endpoint = endpoint
        self._has_started = False  # the stream has

    def _check_grants(self, caller: Caller) -> None:
        super()._check_grants(caller)
        with as_errors():
            caller.grants.check_endpoint(self._endpoint)

    def _miss(self, caller: Caller, error: ServingError | None) -> None:
        """Who has a key has a row, also for what nobody read."""
        record = self._record(caller)
        record.admit(model="", is_streamed=False)
        if error is None:
            record.leave()
        else:
            record.fail(error)

    async def _answer(self, caller: Caller, body: bytes) -> None:
        """Answer, and record exactly one usage row of it, whatever happens."""
        record = self._record(caller, body)
        try:
            _check_client_request_id(self.scope)
            exchange = _parse(record, self._endpoint, body, self._tree)
            await self._run(record, caller, exchange)
        except asyncio.CancelledError:
            if record.live.ending is None:
                raise
            record.fail(record.live.ending)
            if not self._has_started:
                raise record.live.ending from None
        except ServingError as error:
            record.fail(error)
            raise
        except Exception:
            record.fail(ServingError("The server failed. Try again."))  # the edge tells it
            raise
        finally:
            record.leave()  # changes nothing unless this task was cancelled

    def _record(self, caller: Caller, body: bytes = b"") -> RequestRecord:
        return RequestRecord(
            self._runtime,
            caller,
            request_id=self.scope[REQUEST_ID],
            endpoint=self._endpoint,
            dialect=self._tree,
            address=address_of(self.scope),
            client_request_id=_text(header(self.scope, _CLIENT_REQUEST_ID)),
            body=body,
        )

    @property
    def _tree(self) -> str:
        tree: str = self.scope["url_route"]["kwargs"]["tree"]
        return tree

    async def _run(self, record: RequestRecord, caller: Caller, exchange: Exchange) -> None:
        request = exchange.request
        engine = self._engine(caller, request.model)
        record.name_model(engine.entry.name)
        head = AnswerIdentity.new(engine.entry.name, requested_id=request.handling.answer_id)
        deadline_s = settings.VINERY_REQUEST_TIMEOUT_S
        prepared = await prepare(
            request,
            engine,
            record.meter,
            token=head.token,
            deadline_s=deadline_s,
            request_id=self.scope[REQUEST_ID],
        )
        await record.reservation.reserve(prepared)
        if request.is_streamed:
            await self._stream(record, exchange.encoder(head), prepared)
        else:
            body = exchange.body(head, await whole(prepared, record.reservation.allowance))
            record.answered(body)
            headers = [*JSON, *record.reservation.headers]
            record.succeed()
            await send_whole(self.base_send, 200, headers, body)

    async def _stream(
        self, record: RequestRecord, encoder: Encoder, prepared: PreparedRequest
    ) -> None:
        async with contextlib.aclosing(
            _told(record, stream(prepared, record.reservation.allowance))
        ) as batches:
            async for events in batches:
                if not self._has_started:
                    if not events:
                        continue  # still unknown whether the status will be 200
                    await self.send_headers(
                        status=200, headers=[*_STREAM, *record.reservation.headers]
                    )
                    self._has_started = True
                frames = b"".join([encoder.feed(event) for event in events])
                if events and not frames:
                    continue
                record.answered(frames)
                is_last = bool(events) and _settle(record, events[-1])
                record.live.sending_since = time.monotonic()
                await self.send_body(frames or KEEP_ALIVE, more_body=not is_last)
                record.live.sending_since = None


async def _told(
    record: RequestRecord, batches: AsyncGenerator[list[Event], None]
) -> AsyncGenerator[list[Event], None]:
    """The same; and when the request is ended although its client waits, a last word."""
    has_begun = False
    try:
        async with contextlib.aclosing(batches):
            async for events in batches:
                has_begun = has_begun or bool(events)
                yield events
    except asyncio.CancelledError:
        if record.live.ending is None or not has_begun:
            raise
        yield [Failed(record.live.ending)]


def _settle(record: RequestRecord, event: Event) -> bool:
    """Whether the event is the last. Settled before it is sent: some servers tell of the
    end of a connection before the answer's task goes on."""
    match event:
        case Completed():
            record.succeed()
        case Failed(error=error):
            record.fail(error)
        case _:
            return False
    return True


def _parse(record: RequestRecord, endpoint: Endpoint, body: bytes, dialect: str) -> Exchange:
    """A body that cannot be understood has its row too."""
    try:
        exchange = parse(endpoint, body, DIALECTS[dialect], fingerprint=settings.VINERY_FINGERPRINT)
    except ServingError:
        record.admit(model="", is_streamed=False)
        raise
    request = exchange.request
    record.admit(model=request.model or "", is_streamed=request.is_streamed)
    return exchange


def _refuse_other_media(content_type: bytes | None) -> None:
    """Raises `UnsupportedMediaType` for a body that says that it is not JSON."""
    media = (content_type or b"").partition(b";")[0].strip().lower()
    if media and media not in (b"application/json", b"text/json") and not media.endswith(b"+json"):
        raise UnsupportedMediaType(
            "The request body must be JSON. Send it with `Content-Type: application/json`."
        )


def _check_client_request_id(scope: Scope) -> None:
    """Raises `InvalidRequest` for one that OpenAI would not take."""
    given = header(scope, _CLIENT_REQUEST_ID)
    if given is not None and not (given.isascii() and len(given) <= _MAX_CLIENT_REQUEST_ID):
        raise InvalidRequest(
            "The header `x-client-request-id` must be ASCII, and no longer than "
            f"{_MAX_CLIENT_REQUEST_ID} characters."
        )


def _text(header: bytes | None) -> str:
    return (header or b"").decode("ascii", "ignore")


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of this name, which is in lower case."""
    return next((value for key, value in scope["headers"] if key == name), None)


async def _read_body(receive: Receive) -> bytes:
    """The whole body. Raises `BodyTooLarge`, `ClientGone`, and `InvalidRequest` when the
    client falls silent in the middle of it."""
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                message = await receive()
        except TimeoutError:
            raise InvalidRequest(
                f"Nothing of the request body arrived for {_BODY_TIMEOUT_S:g} s."
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes > settings.VINERY_MAX_BODY_BYTES:
            limit_mb = settings.VINERY_MAX_BODY_BYTES // 2**20
            raise BodyTooLarge(f"The request body is larger than {limit_mb} MB.")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
