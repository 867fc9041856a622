"""The consumers of JSON bodies: what those of all endpoints share, and those of a tokenizer.

Channels' own HTTP consumer reads bodies without a limit and does not notice a disconnect while
it answers. `JsonConsumer` limits the body, and waits for the disconnect beside the answer: the
first to end ends the other, and with the answer the engine's work.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Sequence, Set
from functools import partial
from typing import Any, Final

from channels.generic.http import AsyncHttpConsumer
from django.conf import settings

from vinery_accounts.keys.table import Caller
from vinery_accounts.models import Scope as KeyScope
from vinery_serving.core.dialects import V1
from vinery_serving.core.endpoints import PoolingEndpoint
from vinery_serving.core.errors import (
    InvalidRequest,
    MethodNotAllowed,
    ServingError,
    UnsupportedMediaType,
    UsageNotRecorded,
)
from vinery_serving.core.request import Endpoint
from vinery_serving.core.tasks import ALL_TASKS, Task
from vinery_serving.flow.directory import Engine
from vinery_serving.flow.meter import Meter
from vinery_serving.http.bodies import BodyLimits, ClientGone, api_bodies, read_body
from vinery_serving.http.callers import (
    address_of,
    authenticate,
    authorization_of,
    grant_errors,
    permitted_engine,
)
from vinery_serving.http.edge import (
    JSON,
    REQUEST_ID,
    Receive,
    Scope,
    Send,
    error_body,
    header,
    send_whole,
    server_failed,
)
from vinery_serving.http.notices import report_unused
from vinery_serving.http.paths import DEPLOYMENT
from vinery_serving.intake.reading import (
    Head,
    answer_tokens,
)
from vinery_serving.requests.media import CallerMedia
from vinery_serving.requests.record import RequestRecord
from vinery_serving.requests.reservation import count_request
from vinery_serving.runtime.drain import Drain
from vinery_serving.runtime.runtime import Runtime

# The client's own id of its request, as in OpenAI's API.
_CLIENT_REQUEST_ID: Final = b"x-client-request-id"
_MAX_CLIENT_REQUEST_ID: Final = 512
# Parts of a long answer that are written before other requests get a turn.
PARTS_AT_ONCE: Final = 16


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
                with ended_by(self._runtime.drain):
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
        with ended_by(self._runtime.drain):
            answer = await answer_tokens(
                workers, key, self._job, body, self._tree, engine_of, media.fetch
            )
        await self._send_json(answer, headers)


class RecordedConsumer(JsonConsumer):
    """Answers `POST {tree}/{endpoint}`, and writes one usage record of each request."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint | PoolingEndpoint) -> None:
        super().__init__(runtime)
        self._named = endpoint
        self._has_started = False  # the answer

    def _check_grants(self, caller: Caller) -> None:
        super()._check_grants(caller)
        with grant_errors():
            caller.grants.check_endpoint(self._named)

    @property
    def _deployment(self) -> str | None:
        """The model that the path names, as Azure's clients do."""
        deployment: str | None = self.scope[DEPLOYMENT]
        return deployment

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
            self._close()

    @abstractmethod
    async def _serve(self, record: RequestRecord, caller: Caller, body: bytes) -> None:
        """Run the request and send its answer. Raises `ServingError`."""

    def _close(self) -> None:
        """Release what the request holds, after its record is settled."""

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


@contextlib.contextmanager
def ended_by(drain: Drain) -> Iterator[None]:
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
