"""The consumer of the endpoints that generate text, whole or as a stream."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple

from django.conf import settings

from vinery_accounts.keys.table import Caller
from vinery_serving.core.errors import (
    Overloaded,
    ServingError,
)
from vinery_serving.core.events import Completed, Event, Failed
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.media import InlineSource, MediaPart
from vinery_serving.core.request import Endpoint
from vinery_serving.core.tasks import GENERATION_TASKS, Task
from vinery_serving.flow.generate import stream, whole
from vinery_serving.flow.overload import Passage
from vinery_serving.flow.prepared import PreparedRequest
from vinery_serving.flow.preparing import prepare
from vinery_serving.http.consumers import (
    RecordedConsumer,
)
from vinery_serving.http.edge import (
    REQUEST_ID,
)
from vinery_serving.http.notices import report_clamp, report_unused
from vinery_serving.intake.reading import (
    GenerationReader,
    InProcess,
    model_of,
)
from vinery_serving.protocols import parse
from vinery_serving.protocols.common.exchange import Encoder, Exchange
from vinery_serving.requests.media import CallerMedia
from vinery_serving.requests.record import RequestRecord
from vinery_serving.runtime.runtime import Runtime

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


class GenerationConsumer(RecordedConsumer):
    """Answers an endpoint that generates text."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint) -> None:
        super().__init__(runtime, endpoint)
        self._endpoint = endpoint
        self._keep_alive = b""
        self._passage: Passage | None = None  # through the model's gate

    @property
    def _tasks(self) -> Set[Task]:
        return GENERATION_TASKS

    async def _serve(self, record: RequestRecord, caller: Caller, body: bytes) -> None:
        answering, prepared = await self._prepare(record, caller, body)
        del body
        # Pictures stay in memory: another engine may have to go on with the request.
        self._claim.keep(prepared.num_media_bytes)
        await self._run(record, answering, prepared)

    def _close(self) -> None:
        if self._passage is not None:
            self._passage.close()

    async def _prepare(
        self, record: RequestRecord, caller: Caller, body: bytes
    ) -> tuple[_Answering, PreparedRequest]:
        """Read the body, admit the request, and render its prompt."""
        lane = (caller.organization_id or 0, caller.key_id or 0)
        is_expected = self._refuse_unread(record, caller, lane, body)
        reading = GenerationReader(self._runtime.workers, self._owner, len(body), _IN_PROCESS)
        async with reading as reader:
            fingerprint = settings.VINERY_FINGERPRINT
            head = await reader.parse(body, self._endpoint, self._tree, fingerprint)
            model = self._deployment or head.model
            record.admit(model=model or "", is_streamed=head.is_streamed)
            replaced = () if head.model in (None, model) else ("model",)
            report_unused(head.unused, self.scope, self._runtime.traffic, *replaced)
            engine = self._engine(caller, model)
            record.name_model(engine.entry.name)
            self._passage = engine.gate.enter(
                lane, record.meter, is_expected=is_expected, has_media=bool(head.media)
            )
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
                lane=lane,
            )
        self._passage.set_out()
        report_clamp(draft.request.stopping.max_tokens_param, draft.clamped_to, self.scope)
        prepared = PreparedRequest.of(draft, engine, record.meter, identity.token)
        record.note_media()
        return _Answering(exchange, identity), prepared

    def _refuse_unread(
        self, record: RequestRecord, caller: Caller, lane: tuple[int, int], body: bytes
    ) -> bool:
        """Refuse a request for an overloaded model before it is parsed, or sent to a worker.

        Returns whether it was refused before and comes back at its time. Raises `Overloaded`.
        Other errors are found where the request is read.
        """
        if not any(engine.gate.may_refuse for engine in self._runtime.directory.engines):
            return False
        try:
            engine = self._engine(caller, self._deployment or model_of(body))
        except ServingError:
            return False
        try:
            return engine.gate.check(lane, body)
        except Overloaded:
            record.admit(model=engine.entry.name)
            raise

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
            await self._send_json(body, headers)

    async def _stream(
        self, record: RequestRecord, encoder: Encoder, prepared: PreparedRequest
    ) -> None:
        batches = stream(prepared, record.reservation.token_source)
        async with contextlib.aclosing(batches):
            try:
                async for events in batches:
                    await self._send_events(record, encoder, events)
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
            if not events:
                return  # the status may still become an error
            headers = [*_STREAM, *record.reservation.headers]
            start = {"type": "http.response.start", "status": 200, "headers": headers}
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
