"""Background responses: accepted, given to the process with the lease, and followed."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from functools import cache, partial
from typing import Final

from django.db import Error

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.stored import runs
from vinery_accounts.stored.rows import NotStored
from vinery_accounts.stored.runs import ClaimedRun, RunLost, StoredRequest
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.gateway.endpoints.background_run import (
    PASSING_S,
    READING,
    SILENCE_S,
    Frames,
    Run,
)
from vinery_serving.gateway.endpoints.callers import address_of
from vinery_serving.gateway.endpoints.edge import DEPLOYMENT
from vinery_serving.gateway.endpoints.requests import ApiRequest
from vinery_serving.gateway.endpoints.streaming import STREAM
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.memory.keeping import check_room, new_response
from vinery_serving.gateway.memory.recalling import RECALL_ERRORS, error_of, storage_of
from vinery_serving.gateway.reading.worker_jobs import Head
from vinery_serving.gateway.recording.reservation import count_request
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.common.encoding import DONE, KEEP_ALIVE
from vinery_serving.protocols.responses.exchange import ResponsesExchange

log = logging.getLogger(__name__)

# Runs at once of one web process; others wait in the database.
_MAX_RUNS: Final = 16
_LOOK_INTERVAL_S: Final = 5.0  # for the runs of dead processes
_RENEW_INTERVAL_S: Final = runs.LEASE_S / 3
_FOLLOW_INTERVAL_S: Final = 0.5  # of a run in another process


class BackgroundRuns:
    """The runs of this process. Belongs to the event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._me = runs.this_process()
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by the key of the run
        self._frames: dict[str, Frames] = {}  # by the id of the response
        self._by_response: dict[str, asyncio.Task[None]] = {}
        self._look_at_s = self._renew_at_s = 0.0
        self._looking = asyncio.Lock()
        self._looks: set[asyncio.Task[None]] = set()
        runtime.do_background = self._look

    # -- Accepting

    async def accept(self, request: ApiRequest, body: bytes) -> None:
        """Check the whole request, store it, and answer with the queued response or its events."""
        runtime, caller, headers = self._runtime, request.caller, []

        async def admit(head: Head) -> Engine:
            engine = request.engine(request.scope[DEPLOYMENT] or head.model)
            limits, name = runtime.limits, engine.entry.name
            headers.extend(await count_request(limits, caller, name, request.id))
            return engine

        engine, (exchange, _) = await request.read(READING, body, admit)
        assert isinstance(exchange, ResponsesExchange)
        await check_room(runtime, caller)
        identity = AnswerIdentity.new(engine.entry.name)
        queued = exchange.queued(identity)
        stored = StoredRequest(
            request_id=request.id,
            token=identity.token,
            created_at=identity.created_at,
            tree=request.tree,
            body=body,
            key_id=caller.key_id,
            address=address_of(request.scope),
        )
        kept, days = exchange.to_keep, storage_of(runtime, caller).days
        assert kept is not None
        new = new_response(caller, request.id, identity, kept, queued, days)
        try:
            await runtime.recall(partial(runs.create, new, stored))
        except RECALL_ERRORS as error:
            raise error_of(error) from None
        self._look_soon()
        if not exchange.request.is_streamed:
            await request.send_json(queued, headers)
            return
        head = {"type": "http.response.start", "status": 200, "headers": STREAM}
        await request.send(head)
        request.has_started = True
        async for frames in self.follow(caller.project_id, new.public_id, -1):
            await request.send({"type": "http.response.body", "body": frames, "more_body": True})
        await request.send({"type": "http.response.body", "body": b"", "more_body": False})

    # -- Following

    async def follow(
        self, project_id: int | None, public_id: str, after: int
    ) -> AsyncIterator[bytes]:
        """Yield the frames with numbers above `after` until the response has ended or is deleted,
        and keep-alives in between, also while the database is away."""
        sent_at_s = time.monotonic()
        while True:
            local, is_over, new = self._frames.get(public_id), False, list[bytes]()
            if local is not None:
                new = local.after(after)
            if local is None or local.has_ended:
                is_over, new = await self._stored_after(project_id, public_id, after)
            after += len(new)
            if new:
                yield b"".join(new)
            if is_over:
                yield DONE
                return
            if new:
                sent_at_s = time.monotonic()
            elif time.monotonic() - sent_at_s >= SILENCE_S:
                sent_at_s = time.monotonic()
                yield KEEP_ALIVE
            if local is not None and not local.has_ended:
                if not local.after(after):
                    await local.wait()
            else:
                await asyncio.sleep(_FOLLOW_INTERVAL_S)

    async def _stored_after(
        self, project_id: int | None, public_id: str, after: int
    ) -> tuple[bool, list[bytes]]:
        """Whether no further frames will come, and the stored ones with numbers above `after`."""
        try:
            read = partial(runs.read_events, project_id, public_id, after)
            found = await self._runtime.recall(read)
        except NotStored:
            return True, []
        except (*DATABASE_UNAVAILABLE, TimeoutError):
            return False, []
        new: list[bytes] = []
        for first, events in found.chunks:
            listed = [each + b"\n\n" for each in events.split(b"\n\n") if each]
            new += listed[max(0, after + 1 + len(new) - first) :]
        return found.is_over, new

    # -- Running

    def _look_soon(self) -> None:
        self._look_at_s = 0.0
        task = asyncio.create_task(self._look(), name="background-look")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _look(self) -> None:
        """Once a second: renew, look for work, and stop what was lost."""
        async with self._looking:
            with contextlib.suppress(Error, TimeoutError):  # the next look is soon
                await self._look_once()

    async def _look_once(self) -> None:
        now_s, drain = time.monotonic(), self._runtime.drain
        if drain.is_ending:
            for task in self._tasks.values():
                task.cancel()
            return
        if self._tasks:
            await self._renew(now_s)
        if now_s < self._look_at_s or len(self._tasks) >= _MAX_RUNS:
            return
        self._look_at_s = now_s + _LOOK_INTERVAL_S
        free = _MAX_RUNS - len(self._tasks)
        for run in await self._runtime.recall(partial(runs.claim, self._me, free)):
            self._frames[run.public_id] = Frames()
            task = asyncio.create_task(self._do(run), name="background")
            self._tasks[run.pk] = self._by_response[run.public_id] = task

    def stop(self, public_id: str) -> None:
        """Stop the run of a response that was cancelled, if it is here."""
        if (task := self._by_response.get(public_id)) is not None:
            task.cancel()

    async def _renew(self, now_s: float) -> None:
        """Also ends the runs that were cancelled in another process."""
        is_due = now_s >= self._renew_at_s
        if is_due:
            self._renew_at_s = now_s + _RENEW_INTERVAL_S
        asked = runs.renew if is_due else runs.held
        mine = await self._runtime.recall(partial(asked, self._me))
        for pk, task in self._tasks.items():
            if pk not in mine:
                task.cancel()

    async def _do(self, run: ClaimedRun) -> None:
        frames = self._frames[run.public_id]
        one = Run(self._runtime, run, frames)
        try:
            await one.do()
        except RunLost:
            log.info("a background response goes on elsewhere or was cancelled")
        except asyncio.CancelledError:
            await self._settle_cancelled(run, one)
        except Exception:
            log.exception("a background response ended with a defect of the server")
            with contextlib.suppress(Error, TimeoutError):
                again = partial(runs.put_back, run, PASSING_S, counts=True)
                await self._runtime.recall(again)
        finally:
            one.held.release(is_recorded=False)
            frames.end()
            self._frames.pop(run.public_id, None)
            self._tasks.pop(run.pk, None)
            self._by_response.pop(run.public_id, None)
            self._look_at_s = 0.0

    async def _settle_cancelled(self, run: ClaimedRun, one: Run) -> None:
        """A client has cancelled the response, and pays for the tokens so far; or the process ends,
        and another one goes on."""
        with contextlib.suppress(Error, TimeoutError):
            is_cancelled = await self._runtime.recall(partial(runs.is_cancelled, run))
            if is_cancelled and one.held.settlement is not None:
                self._runtime.ledger.settle(one.held.settlement)
                one.held.release(is_recorded=True)


@cache
def runs_of(runtime: Runtime) -> BackgroundRuns:
    """The background runs of a web process."""
    return BackgroundRuns(runtime)
