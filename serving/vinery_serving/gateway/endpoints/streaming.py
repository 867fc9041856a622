"""Sends answers, as a stream or whole, and stores those that are kept before their end."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from vinery_accounts.stored import compactions
from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import Compacted, Completed, Event, Failed, Started
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.result import ResultBuilder
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway.endpoints.notices import report_clamp, report_unenforced
from vinery_serving.gateway.endpoints.requests import ApiRequest, ending_of
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.memory import check_room, keep
from vinery_serving.gateway.preparing.prepared import Draft, PreparedRequest, Trail
from vinery_serving.gateway.reading.worker_jobs import GENERATION, Head
from vinery_serving.gateway.recording.record import RequestRecord
from vinery_serving.gateway.running.generate import SILENCE_S, Batches, run, whole
from vinery_serving.protocols import Exchange
from vinery_serving.protocols.responses.exchange import ResponsesExchange

# No proxy may buffer or compress a stream.
STREAM: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


async def generate(
    request: ApiRequest,
    record: RequestRecord,
    engine: Engine,
    read: tuple[Exchange, Draft],
    identity: AnswerIdentity | None = None,
    trail: Trail | None = None,
) -> None:
    exchange, draft = read
    asked, name = draft.request, engine.entry.name
    identity = identity or AnswerIdentity.new(name, requested_id=asked.handling.answer_id)
    report_clamp(asked.stopping.max_tokens_param, draft.clamped_to, request.scope)
    prepared = PreparedRequest.of(draft, engine, record.meter, identity.token, trail)
    record.note_media()
    if exchange.to_keep is not None and not request.is_detached:
        await check_room(request.memory)
    # Prompts and pixels stay in memory: another engine may have to go on with the request.
    request.claim.keep(prepared.num_bytes + len(request.body))
    await record.reservation.reserve(name, record.meter.tokens, prepared)
    both = _run_both(request, record, prepared, exchange) if draft.summarizes else None
    if asked.is_streamed or request.is_detached:
        await Streamed(request, record, exchange, identity).send(prepared, both)
        return
    result = await whole(prepared, record.reservation.token_source, both)
    body = exchange.body(identity, result)
    if not await _is_stored(request, exchange, identity, body):
        body = exchange.body(identity, replace(result, is_kept=False))
    await send_whole(request, record, body)


async def send_whole(request: ApiRequest, record: RequestRecord, body: bytes) -> None:
    record.add_answer(body)
    headers = record.reservation.headers  # before the record is settled
    record.succeed()
    report_unenforced(record.meter.unenforced, request.scope, request.runtime.traffic)
    await request.send_json(body, headers)


async def _is_stored(
    request: ApiRequest, exchange: Exchange, identity: AnswerIdentity, body: bytes
) -> bool:
    """Store the whole answer if it is to be kept. Returns False if that failed."""
    if request.is_detached or (kept := exchange.to_keep) is None:
        return True
    return await keep(request.memory, identity, kept, body)


class Streamed:
    def __init__(
        self,
        request: ApiRequest,
        record: RequestRecord,
        exchange: Exchange,
        identity: AnswerIdentity,
    ) -> None:
        self._request, self._record = request, record
        self._exchange, self._identity = exchange, identity
        self._encoder = exchange.encoder(identity)
        # All events, of an answer that is kept.
        self._events: list[Event] | None = None if exchange.to_keep is None else []
        self._keep_alive = exchange.keep_alive

    async def send(self, prepared: PreparedRequest, read: Batches | None = None) -> None:
        """`read` comes instead of what the request itself yields."""
        request, record = self._request, self._record
        async with aclosing(read or run(prepared, record.reservation.token_source)) as batches:
            try:
                async for events in batches:
                    # A keep-alive begins the answer only while the model wakes: a refusal by a
                    # connected engine may still set the status.
                    if events or request.has_started or not prepared.engine.replicas.is_connected:
                        await self._send(events)
            except ServingError as error:
                if not request.has_started:
                    raise
                await self._send([Failed(error)])
            except asyncio.CancelledError:
                ending = ending_of(request, record)
                if ending is None or not request.has_started:
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
        is_kept = await _is_stored(self._request, self._exchange, self._identity, body)
        return events if is_kept else [*events[:-1], replace(last, is_kept=False)]

    async def _send(self, events: Sequence[Event]) -> None:
        """Runs for all tokens, so it calls the server directly."""
        request, record = self._request, self._record
        if self._events is not None:
            events = await self._keep(events)
        if not request.has_started:
            headers = [*STREAM, *record.reservation.headers]
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
        await request.send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def _run_both(
    request: ApiRequest, record: RequestRecord, prepared: PreparedRequest, exchange: Exchange
) -> Batches:
    """Yield what `run` would: the summary as `Compacted`, and the events of the answer. In between
    the summary is sealed, and the body is read again with it in the place of the conversation."""
    assert isinstance(exchange, ResponsesExchange)
    tokens, builder, sent_at = record.reservation.token_source, ResultBuilder(), 0.0
    # The next process would summarize anew, so the tokens of the summary are not stored.
    async with aclosing(run(replace(prepared, trail=None), tokens, may_restart=True)) as batches:
        async for events in batches:
            for event in events:
                builder.feed(event)
            if events and not sent_at:
                sent_at = time.monotonic()
                yield [events[0], Compacted()]
            elif not events or time.monotonic() - sent_at >= SILENCE_S:
                sent_at = sent_at and time.monotonic()
                yield []
    (choice,) = builder.result().choices
    content = exchange.compaction(choice.text.strip() or choice.reasoning)
    yield [Compacted(compactions.seal(request.caller.project_id, content))]
    if exchange.request.compact_above == 0:
        yield [Completed(record.meter.billed_tokens, int(time.time()))]
        return
    answer = await _answer_after(request, record, prepared, content)
    is_whole = not (request.is_detached or answer.request.is_streamed)
    async with aclosing(run(answer, tokens, may_restart=is_whole)) as batches:
        async for events in batches:
            if is_whole or not events or not isinstance(events[0], Started):
                yield events
            elif len(events) > 1:  # a stream has begun
                yield events[1:]


async def _answer_after(
    request: ApiRequest, record: RequestRecord, prepared: PreparedRequest, content: bytes
) -> PreparedRequest:
    """Return the request for the answer. Raises `ServingError`."""

    async def admit(_: Head) -> Engine:
        return prepared.engine

    request.memory.compaction = content
    _, (_, draft) = await request.read(GENERATION[Endpoint.RESPONSES], request.body, admit)
    record.meter.begin_answer()
    origin = (prepared.engine, record.meter, prepared.token, prepared.trail)
    answer = PreparedRequest.of(draft, *origin)
    request.claim.keep(answer.num_bytes)
    return answer
