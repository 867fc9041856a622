"""The endpoints with JSON bodies, generation and a model's tokenizer, and their routes.

Channels' own HTTP consumer reads bodies without a limit and does not notice a disconnect while
it answers. `JsonConsumer` limits the body, and waits for the disconnect beside the answer: the
first to end ends the other, and with the answer the engine's work.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, cast

from channels.generic.http import AsyncHttpConsumer
from channels.routing import URLRouter
from django.conf import settings
from django.urls import re_path

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
from serving.flow.rendering import count_tokens, detokenize, off_loop, tokenize
from serving.http.callers import address_of, authenticate, grant_errors
from serving.http.documents import ConstantDocument, KeyUsage, openapi, version
from serving.http.edge import (
    JSON,
    REQUEST_ID,
    ApiEdge,
    App,
    Receive,
    Scope,
    Send,
    header,
    send_whole,
    server_failed,
)
from serving.protocols import parse
from serving.protocols.common.encoding import KEEP_ALIVE
from serving.protocols.common.exchange import Encoder, Exchange
from serving.protocols.responses.exchange import count_body, parse_count
from serving.protocols.tokens import parse_detokenize, parse_tokenize
from serving.requests.record import RequestRecord
from serving.runtime.runtime import Runtime

# How long a client may send nothing before its body is complete.
_BODY_TIMEOUT_S: Final = 60.0
# The client's own id of its request, as in OpenAI's API.
_CLIENT_REQUEST_ID: Final = b"x-client-request-id"
_MAX_CLIENT_REQUEST_ID: Final = 512
# No proxy may buffer or compress a stream.
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
        """ASGI. Raises `ServingError` while nothing has been sent."""
        self.scope, self.base_send = scope, send
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], allowed="POST")
        authorization = header(scope, b"authorization")
        caller = authenticate(self._runtime.required_keys, scope, authorization)
        try:
            self._check_grants(caller)
            _check_media_type(header(scope, b"content-type"))
            body = await _read_body(receive)
        except ClientGone:
            self._record_unread(caller, None)
            return
        except ServingError as error:
            self._record_unread(caller, error)
            raise
        answer = asyncio.create_task(self._answer(caller, body), name="answer")
        disconnect = asyncio.create_task(_wait_for_disconnect(receive), name="disconnect")
        try:
            await asyncio.wait([answer, disconnect], return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            answer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answer

    def _check_grants(self, caller: Caller) -> None:
        """Raises `NotPermitted` for a key without the right to this endpoint."""
        with grant_errors():
            caller.grants.check_scope(KeyScope.INFERENCE)
            caller.grants.check_address(address_of(self.scope))

    def _engine(self, caller: Caller, model: str | None) -> Engine:
        """The engine of a model. Raises `ServingError`, also for a key without the right to the
        model."""
        engine = self._runtime.directory.find(model)
        with grant_errors():
            caller.grants.check_model(engine.entry.name)
        return engine

    @property
    def _tree(self) -> str:
        tree: str = self.scope["url_route"]["kwargs"]["tree"]
        return tree

    async def _send_json(self, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        await send_whole(self.base_send, 200, [*JSON, *headers], body)

    def _record_unread(self, caller: Caller, error: ServingError | None) -> None:
        """Record a request whose body was not read: it was refused with `error`, or the client
        disconnected (None)."""

    @abstractmethod
    async def _answer(self, caller: Caller, body: bytes) -> None:
        """Send the answer. Cancelled when the client disconnects. Raises `ServingError`."""


class TokenizeConsumer(JsonConsumer):
    """Answers `POST /tokenize`, with vLLM's bodies or with OVMS's. It is not metered."""

    async def _answer(self, caller: Caller, body: bytes) -> None:
        exchange = parse_tokenize(body)
        tokenized = await tokenize(exchange.request, self._engine(caller, exchange.request.model))
        num_tokens = sum(map(len, tokenized.token_ids))
        await self._send_json(await off_loop(lambda: exchange.body(tokenized), num_tokens))


class DetokenizeConsumer(JsonConsumer):
    """Answers `POST /detokenize`, as vLLM does. It is not metered."""

    async def _answer(self, caller: Caller, body: bytes) -> None:
        exchange = parse_detokenize(body)
        text = await detokenize(exchange.token_ids, self._engine(caller, exchange.model))
        await self._send_json(await off_loop(lambda: exchange.body(text), len(text)))


class InputTokensConsumer(JsonConsumer):
    """Answers `POST {tree}/responses/input_tokens`, as OpenAI does. It is not metered."""

    async def _answer(self, caller: Caller, body: bytes) -> None:
        request = parse_count(body, DIALECTS[self._tree])
        num_tokens = await count_tokens(request, self._engine(caller, request.model))
        await self._send_json(count_body(num_tokens))


class GenerationConsumer(JsonConsumer):
    """Answers `POST {tree}/{endpoint}`, and writes one usage record of each request."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint) -> None:
        super().__init__(runtime)
        self._endpoint = endpoint
        self._has_started = False  # the stream

    def _check_grants(self, caller: Caller) -> None:
        super()._check_grants(caller)
        with grant_errors():
            caller.grants.check_endpoint(self._endpoint)

    def _record_unread(self, caller: Caller, error: ServingError | None) -> None:
        record = self._new_record(caller)
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
            # Also a defect of the server settles the record. The edge logs it and answers this.
            record.fail(server_failed())
            raise
        finally:
            record.leave()  # has an effect only if this task was cancelled

    def _new_record(self, caller: Caller, body: bytes = b"") -> RequestRecord:
        return RequestRecord(
            self._runtime,
            caller,
            request_id=self.scope[REQUEST_ID],
            endpoint=self._endpoint,
            dialect=self._tree,
            address=address_of(self.scope),
            client_request_id=(header(self.scope, _CLIENT_REQUEST_ID) or b"").decode(
                "ascii", "ignore"
            ),
            body=body,
        )

    async def _run(self, record: RequestRecord, caller: Caller, exchange: Exchange) -> None:
        request, reservation = exchange.request, record.reservation
        engine = self._engine(caller, request.model)
        record.name_model(engine.entry.name)
        head = AnswerIdentity.new(engine.entry.name, requested_id=request.handling.answer_id)
        prepared = await prepare(
            request,
            engine,
            record.meter,
            token=head.token,
            deadline_s=settings.VINERY_REQUEST_TIMEOUT_S,
            request_id=self.scope[REQUEST_ID],
        )
        await reservation.reserve(prepared)
        if request.is_streamed:
            await self._stream(record, exchange.encoder(head), prepared)
        else:
            body = exchange.body(head, await whole(prepared, reservation.token_source))
            record.add_answer(body)
            headers = reservation.headers  # before the record is settled
            record.succeed()
            await self._send_json(body, headers)

    async def _stream(
        self, record: RequestRecord, encoder: Encoder, prepared: PreparedRequest
    ) -> None:
        reservation = record.reservation
        generated = _with_ending(record, stream(prepared, reservation.token_source))
        async with contextlib.aclosing(generated) as batches:
            async for events in batches:
                if not self._has_started:
                    if not events:
                        continue  # the status may still become an error
                    headers = [*_STREAM, *reservation.headers]
                    await self.send_headers(status=200, headers=headers)
                    self._has_started = True
                frames = b"".join([encoder.feed(event) for event in events])
                if events and not frames:
                    continue
                record.add_answer(frames)
                last = events[-1] if events else None
                # Before it is sent: some servers report a disconnect before this task continues.
                if isinstance(last, Completed):
                    record.succeed()
                elif isinstance(last, Failed):
                    record.fail(last.error)
                is_last = isinstance(last, Completed | Failed)
                record.live.sending_since = time.monotonic()
                await self.send_body(frames or KEEP_ALIVE, more_body=not is_last)
                record.live.sending_since = None


async def _with_ending(
    record: RequestRecord, batches: AsyncGenerator[list[Event], None]
) -> AsyncGenerator[list[Event], None]:
    """The same batches, and a `Failed` if the server ends the request while its client waits."""
    has_started = False
    try:
        async with contextlib.aclosing(batches):
            async for events in batches:
                has_started = has_started or bool(events)
                yield events
    except asyncio.CancelledError:
        if record.live.ending is None or not has_started:
            raise
        yield [Failed(record.live.ending)]


def _parse(record: RequestRecord, endpoint: Endpoint, body: bytes, dialect: str) -> Exchange:
    """Parse the body and admit the request, also if the body is invalid."""
    try:
        exchange = parse(endpoint, body, DIALECTS[dialect], fingerprint=settings.VINERY_FINGERPRINT)
    except ServingError:
        record.admit()
        raise
    request = exchange.request
    record.admit(model=request.model or "", is_streamed=request.is_streamed)
    return exchange


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


async def _read_body(receive: Receive) -> bytes:
    """The whole body. Raises `BodyTooLarge`, `ClientGone`, and `InvalidRequest` when nothing of
    it arrives for `_BODY_TIMEOUT_S`."""
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
            raise BodyTooLarge(settings.VINERY_MAX_BODY_BYTES)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def api_application(runtime: Runtime, rest: App) -> ApiEdge:
    """Return the endpoints of the API that bypass Django's middleware. Other paths go to `rest`."""
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
        re_path(r"^version/?$", cast("Any", ConstantDocument(version))),
        re_path(r"^openapi\.json$", cast("Any", ConstantDocument(openapi))),
        re_path(r"", cast("Any", rest)),
    ]
    return ApiEdge(URLRouter([*generation, *tokenizers, counting, *others]))
