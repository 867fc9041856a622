"""Background responses: accepted, given to the process with the lease, and followed.

The stored request is read like a client's, and the answer goes into a list of events instead of a
socket. Several times a second the new events are stored with the tokens of which they are made. So
the next process reads these tokens again, gets the same events with the same numbers, and goes on.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from functools import cache, partial
from typing import Any, Final

import msgspec
from django.db import Error

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE, KeyRefused
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_accounts.models import BackgroundRun
from vinery_accounts.stored import runs
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import NotStored, text_of
from vinery_accounts.stored.runs import RunLost
from vinery_serving.core import errors
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway import memory
from vinery_serving.gateway.endpoints import requests
from vinery_serving.gateway.endpoints.bodies import api_bodies
from vinery_serving.gateway.endpoints.callers import address_of
from vinery_serving.gateway.endpoints.edge import DEPLOYMENT, OWN_HEADERS, REQUEST_ID, Headers
from vinery_serving.gateway.endpoints.streaming import STREAM, generate
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.preparing.prepared import Trail, TrailPart
from vinery_serving.gateway.reading.worker_jobs import GENERATION, Head
from vinery_serving.gateway.recording.record import RequestRecord
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.common.encoding import DONE, KEEP_ALIVE, named_frame, padded
from vinery_serving.protocols.responses.exchange import ResponsesExchange
from vinery_serving.protocols.responses.objects import error_code

log = logging.getLogger(__name__)

READING: Final = GENERATION[Endpoint.RESPONSES]
_STORE_INTERVAL_S: Final = 0.3  # the events of a run
_AWAY_S: Final = 1.0  # between two tries to store a result
SILENCE_S: Final = 15.0
_MAX_WAIT_S: Final = (
    requests.DETACHED_TIMEOUT_S
)  # A response that could not begin for so long fails
_PASSING_S: Final = 5.0  # before the next try
_MAX_LEASES: Final = 16  # the latest of one response; nearly all have settled theirs

_MAX_RUNS: Final = 16  # runs at once of one web process; others wait in the database
_LOOK_INTERVAL_S: Final = 5.0  # for the runs of dead processes
_FOLLOW_INTERVAL_S: Final = 0.5  # between two looks for stored events


class Run:
    """One try of one response. Clients get stored events, which the next process knows, too."""

    def __init__(self, runtime: Runtime, row: BackgroundRun) -> None:
        self._runtime, self.row, self._request = runtime, row, row.request
        known = msgspec.msgpack.decode(row.trail, type=list[TrailPart]) if row.trail else []
        self._trail = Trail(known)
        self._record: RequestRecord | None = None
        self._earlier: list[bytes] = []  # the events of earlier tries
        self._events: list[bytes] = []
        self.task = asyncio.create_task(self._do(), name="background")

    def _lease_id(self, number: int) -> str:
        return f"{self.row.response.request_id}.{number}"

    async def _do(self) -> None:
        try:
            await self._try()
        except (RunLost, asyncio.CancelledError):
            await self._settle_cancelled()
        except Exception:
            log.exception("a background response ended with a defect of the server")
            with contextlib.suppress(Error, TimeoutError):
                again = partial(runs.put_back, self.row, _PASSING_S, counts=True)
                await self._runtime.recall(again)
        finally:
            self._release(is_recorded=False)

    async def _settle_cancelled(self) -> None:
        """A client has cancelled the response or deleted it, and pays for the tokens so far; or
        another process goes on, at once if this one ends."""
        with contextlib.suppress(Error, TimeoutError):
            await self._runtime.recall(partial(runs.put_back, self.row, 0.0))
            is_cancelled = await self._runtime.recall(partial(runs.is_cancelled, self.row))
            if is_cancelled and self._record is not None and self._record.held is not None:
                self._runtime.ledger.settle(self._record.held)
                self._release(is_recorded=True)

    def _release(self, *, is_recorded: bool) -> None:
        """Charge the settlement if it `is_recorded`, else nothing. Later calls have no effect."""
        if self._record is not None:
            self._record.reservation.release(is_recorded=is_recorded)

    async def _try(self) -> None:
        self._earlier = await self._in_database(partial(runs.begin, self.row))
        storing = asyncio.create_task(self._store_progress(), name="background-progress")
        try:
            await self._generate()
        except errors.ServingError as error:
            if self._is_passing(error):
                delay_s = error.retry_after_s or _PASSING_S
                await self._in_database(partial(runs.put_back, self.row, delay_s))
                return
            self._fail(error)
        finally:
            storing.cancel()
        await self._finish()

    async def _generate(self) -> None:
        runtime, caller = self._runtime, self._caller()
        owner = caller.key_id or self._request.address
        with api_bodies().claim(owner) as claim:
            about = (self._scope(), self._take, caller, owner, claim, Endpoint.RESPONSES)
            api = requests.ApiRequest(runtime, *about, is_detached=True)
            public_id = self.row.response.public_id
            api.memory = memory.StoredMemory(runtime, caller, public_id, claim.keep, is_held=True)
            lease_id = self._lease_id(self.row.lease_number)
            record = self._record = requests.new_record(api, self._request.body, lease_id)
            try:
                await self._answer(api, record)
            except errors.ServingError as error:
                if self._is_passing(error):
                    record.forget()
                else:
                    record.fail(error)
                raise
            except asyncio.CancelledError:
                if (ending := record.live.ending) is None:
                    raise
                record.fail(ending)
                raise ending from None
            finally:
                record.leave()
                api.memory.release()

    async def _take(self, message: MutableMapping[str, Any]) -> None:
        for frame in message.get("body", b"").split(b"\n\n"):
            if frame.startswith((b"event:", b"data:")) and not frame.endswith(b"[DONE]"):
                self._events.append(frame + b"\n\n")

    async def _answer(self, api: requests.ApiRequest, record: RequestRecord) -> None:
        """Raises `ServingError` while there are no events."""
        if self.row.num_tries > runs.MAX_TRIES:
            raise errors.EngineLost("The server ended too often while it ran this response.")

        async def admit(head: Head) -> Engine:
            return requests.admitted(api, record, head)

        engine, read = await api.read(READING, self._request.body, admit, record)
        # What processes that were killed may have reserved.
        last = self.row.lease_number
        earlier = map(self._lease_id, range(max(1, last - _MAX_LEASES), last))
        await self._runtime.limits.release(list(earlier))
        response = self.row.response
        token, created_at = response.public_id.removeprefix("resp_"), response.created_at
        identity = AnswerIdentity(token, int(created_at.timestamp()), engine.entry.name)
        await generate(api, record, engine, read, identity, self._trail)

    def _caller(self) -> Caller:
        """Raises `InvalidKey`: the key was revoked meanwhile."""
        if (key_id := self.row.response.key_id) is None:
            return ANONYMOUS
        try:
            return self._runtime.keys.caller(key_id)
        except KeyRefused as refused:
            raise errors.InvalidKey(refused.message) from None

    def _scope(self) -> dict[str, Any]:
        request = self._request
        return {
            "type": "http",
            "method": "POST",
            "path": f"/{request.tree}/responses",
            "headers": [],
            "client": (request.address, 0) if request.address else None,
            "url_route": {"kwargs": {"tree": request.tree}},
            REQUEST_ID: self.row.response.request_id,
            DEPLOYMENT: None,
            OWN_HEADERS: [],
        }

    def _is_passing(self, error: errors.ServingError) -> bool:
        is_young = time.time() - self.row.response.created_at.timestamp() < _MAX_WAIT_S
        kinds = (errors.LimitReached, errors.Unavailable, errors.ConversationInUse)
        return not self._events and is_young and isinstance(error, kinds)

    async def _store_progress(self) -> None:
        events, trail, num_stored = self._events, self._trail, len(self._earlier)
        while True:
            await asyncio.sleep(_STORE_INTERVAL_S)
            if len(events) <= num_stored or len(trail.parts) <= len(trail.known):
                continue
            parts = msgspec.msgpack.encode(trail.parts)
            store = partial(runs.progress, self.row, list(events), parts)
            try:
                num_stored = await self._runtime.recall(store)
            except (Error, TimeoutError):
                continue  # the same events again, and more
            except RunLost:
                return  # the next renewal ends the run

    def _fail(self, error: errors.ServingError) -> None:
        """End a response without events, or whose events have no end."""
        self._events = self._events or self._earlier
        members = msgspec.json.decode(text_of(self.row.response), type=dict[str, Any])
        details = {"code": error_code(error), "message": error.message}
        failed = {**members, "status": "failed", "error": details}
        states = [("failed", failed)]
        if not self._events:
            states.insert(0, ("created", {**members, "status": "queued"}))
        for name, state in states:
            kind, number = f"response.{name}", len(self._events)
            event = {"type": kind, "response": state, "sequence_number": number}
            self._events.append(named_frame(kind, msgspec.json.encode(event)))

    async def _finish(self) -> None:
        last = self._events[-1].partition(b"data: ")[2]
        final = msgspec.json.decode(last, type=_LastEvent).response
        held = None if self._record is None else self._record.held
        result = memory.parts_of(bytes(final)), list(self._events), held
        await self._in_database(partial(runs.finish, self.row, *result))
        self._release(is_recorded=True)

    async def _in_database(self, work: Callable[[], Any]) -> Any:
        """Try again while the database is away. Raises `RunLost`."""
        while True:
            try:
                return await self._runtime.recall(work)
            except (*DATABASE_UNAVAILABLE, TimeoutError) as error:
                kind = type(error).__name__
                log.warning("a background response waits for the database: %s", kind)
                await asyncio.sleep(_AWAY_S)


class _LastEvent(msgspec.Struct):
    response: msgspec.Raw


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

    async def accept(self, request: requests.ApiRequest, body: bytes) -> None:
        """Check the whole request, store it, and answer with the queued response or its events."""
        runtime, headers = self._runtime, Headers()

        async def admit(head: Head) -> Engine:
            return await request.counted(request.scope[DEPLOYMENT] or head.model, headers)

        engine, (exchange, _) = await request.read(READING, body, admit)
        await memory.check_room(request.memory)
        identity = AnswerIdentity.new(engine.entry.name)
        assert isinstance(exchange, ResponsesExchange)
        assert exchange.to_keep is not None
        queued = exchange.queued(identity)
        stored = runs.StoredRequest(tree=request.tree, body=body, address=address_of(request.scope))
        new = memory.new_answer(request.memory, identity, exchange.to_keep, queued)
        assert isinstance(new, NewResponse)
        await memory.ask(runtime, partial(runs.create, new, stored), param=memory.PREVIOUS)
        self._look_at_s = 0.0
        self._next_look = asyncio.create_task(self._look(), name="background-look")
        if exchange.request.is_streamed:
            await self.send_events(request, new.public_id, -1)
        else:
            await request.send_json(queued, headers)

    async def send_events(
        self, request: requests.ApiRequest, public_id: str, after: int, *, pads: bool = False
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
            new, is_over = await self._stored_after(project_id, public_id, after)
            after += len(new)
            if new or time.monotonic() - sent_at_s >= SILENCE_S:
                yield new or [KEEP_ALIVE]
                sent_at_s = time.monotonic()
            if is_over:
                yield [DONE]
                return
            await asyncio.sleep(_FOLLOW_INTERVAL_S)

    async def _stored_after(
        self, project_id: int | None, public_id: str, after: int
    ) -> tuple[list[bytes], bool]:
        try:
            read = partial(runs.read_events, project_id, public_id, after)
            found = await self._runtime.recall(read)
        except NotStored:
            return [], True
        except (*DATABASE_UNAVAILABLE, TimeoutError):
            return [], False
        return found.events, found.is_over

    def stop(self, public_id: str) -> None:
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
