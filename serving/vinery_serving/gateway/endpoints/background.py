"""Background responses: accepted, given to the process with the lease, and followed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import cache, partial
from typing import Final

from django.db import Error

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.stored import runs
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import NotStored
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.gateway.endpoints.background_run import READING, SILENCE_S, Run
from vinery_serving.gateway.endpoints.callers import address_of
from vinery_serving.gateway.endpoints.edge import DEPLOYMENT, Headers
from vinery_serving.gateway.endpoints.requests import ApiRequest
from vinery_serving.gateway.endpoints.streaming import STREAM
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.memory.keeping import check_room, new_answer
from vinery_serving.gateway.memory.recalling import PREVIOUS, ask
from vinery_serving.gateway.reading.worker_jobs import Head
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.common.encoding import DONE, KEEP_ALIVE, padded
from vinery_serving.protocols.responses.exchange import ResponsesExchange

_MAX_RUNS: Final = 16  # runs at once of one web process; others wait in the database
_LOOK_INTERVAL_S: Final = 5.0  # for the runs of dead processes
_FOLLOW_INTERVAL_S: Final = 0.5  # of a run in another process


class BackgroundRuns:
    """The runs of this process. Belongs to the event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._me = runs.this_process()
        self._runs: dict[str, Run] = {}  # by the id of the response
        self._look_at_s = 0.0
        self._looking = asyncio.Lock()
        self._next_look: asyncio.Task[None] | None = None
        runtime.do_background = self._look

    async def accept(self, request: ApiRequest, body: bytes) -> None:
        """Check the whole request, store it, and answer with the queued response or its events."""
        runtime, headers = self._runtime, Headers()

        async def admit(head: Head) -> Engine:
            return await request.counted(request.scope[DEPLOYMENT] or head.model, headers)

        engine, (exchange, _) = await request.read(READING, body, admit)
        await check_room(request.memory)
        identity = AnswerIdentity.new(engine.entry.name)
        assert isinstance(exchange, ResponsesExchange)
        assert exchange.to_keep is not None
        queued = exchange.queued(identity)
        stored = runs.StoredRequest(tree=request.tree, body=body, address=address_of(request.scope))
        new = new_answer(request.memory, identity, exchange.to_keep, queued)
        assert isinstance(new, NewResponse)
        await ask(runtime, partial(runs.create, new, stored), param=PREVIOUS)
        self._look_at_s = 0.0
        self._next_look = asyncio.create_task(self._look(), name="background-look")
        if exchange.request.is_streamed:
            await self.send_events(request, new.public_id, -1)
        else:
            await request.send_json(queued, headers)

    async def send_events(
        self, request: ApiRequest, public_id: str, after: int, *, pads: bool = False
    ) -> None:
        """Answer with the events whose numbers are above `after`. `pads`: also deltas that were
        stored without padding."""
        await request.send({"type": "http.response.start", "status": 200, "headers": STREAM})
        request.has_started = True
        async for frames in self.follow(request.caller.project_id, public_id, after):
            events = b"".join(_padded(each) if pads else each for each in frames)
            await request.send({"type": "http.response.body", "body": events, "more_body": True})
        await request.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def follow(
        self, project_id: int | None, public_id: str, after: int
    ) -> AsyncIterator[list[bytes]]:
        """Yield events until the response has ended or is gone, and keep-alives in between."""
        sent_at_s = time.monotonic()
        while True:
            run = self._runs.get(public_id)
            if run is None or run.has_ended:
                new, is_over = await self._stored_after(project_id, public_id, after)
            else:
                new, is_over = run.events_after(after), False
            after += len(new)
            if new or time.monotonic() - sent_at_s >= SILENCE_S:
                yield new or [KEEP_ALIVE]
                sent_at_s = time.monotonic()
            if is_over:
                yield [DONE]
                return
            if run is None or run.has_ended:
                await asyncio.sleep(_FOLLOW_INTERVAL_S)
            elif not run.events_after(after):
                await run.wait()

    async def _stored_after(
        self, project_id: int | None, public_id: str, after: int
    ) -> tuple[list[bytes], bool]:
        """The stored events with numbers above `after`, and whether no further ones will come."""
        try:
            read = partial(runs.read_events, project_id, public_id, after)
            found = await self._runtime.recall(read)
        except NotStored:
            return [], True
        except (*DATABASE_UNAVAILABLE, TimeoutError):
            return [], False
        return found.events, found.is_over

    def stop(self, public_id: str) -> None:
        """Stop the run of a response that was cancelled, if it is here."""
        if (run := self._runs.get(public_id)) is not None:
            run.task.cancel()

    async def _look(self) -> None:
        """Once a second: renew, look for work, and stop what was lost."""
        async with self._looking:
            with contextlib.suppress(Error, TimeoutError):  # the next look is soon
                await self._look_once()

    async def _look_once(self) -> None:
        now_s = time.monotonic()
        if self._runtime.drain.is_ending:
            for run in self._runs.values():
                run.task.cancel()
            return
        if self._runs:
            held = await self._runtime.recall(partial(runs.renew, self._me))
            for run in self._runs.values():
                if run.row.pk not in held:  # cancelled in another process, or lost
                    run.task.cancel()
        if now_s < self._look_at_s or len(self._runs) >= _MAX_RUNS:
            return
        self._look_at_s = now_s + _LOOK_INTERVAL_S
        claim = partial(runs.claim, self._me, _MAX_RUNS - len(self._runs))
        for row in await self._runtime.recall(claim):
            run = self._runs[row.response.public_id] = Run(self._runtime, row)
            run.task.add_done_callback(partial(self._ended, run))

    def _ended(self, run: Run, _: asyncio.Task[None]) -> None:
        public_id = run.row.response.public_id
        if self._runs.get(public_id) is run:
            del self._runs[public_id]
        self._look_at_s = 0.0


def _padded(frame: bytes) -> bytes:
    is_bare = frame.partition(b"\n")[0].endswith(b".delta") and b',"obfuscation":"' not in frame
    return padded(frame) if is_bare else frame


@cache
def runs_of(runtime: Runtime) -> BackgroundRuns:
    return BackgroundRuns(runtime)
