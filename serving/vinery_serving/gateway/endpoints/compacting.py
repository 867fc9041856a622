"""Runs the request for a summary and then the request for the answer, as one stream of events. In
between, the summary is sealed, and the body is read again with it in the place of the conversation.
"""

import time
from contextlib import aclosing
from dataclasses import replace

from vinery_accounts.stored import compactions
from vinery_serving.core.events import Compacted, Completed, Started
from vinery_serving.core.result import ResultBuilder
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway.endpoints.requests import ApiRequest
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.preparing.prepared import PreparedRequest
from vinery_serving.gateway.reading.worker_jobs import GENERATION, Head
from vinery_serving.gateway.recording.record import RequestRecord
from vinery_serving.gateway.running.generate import SILENCE_S, Batches, run
from vinery_serving.protocols import Exchange
from vinery_serving.protocols.responses.exchange import ResponsesExchange


async def run_both(
    request: ApiRequest, record: RequestRecord, prepared: PreparedRequest, exchange: Exchange
) -> Batches:
    """Yield what `run` would: the summary as `Compacted`, and the events of the answer."""
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
