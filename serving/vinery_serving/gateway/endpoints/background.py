"""Background responses: accepted, run by the process with the lease, and followed.

A run reads the stored request like a client's, and its answer goes into a list of frames instead of
a socket. Every second the new frames are stored with the tokens of which they are made. So the next
process reads these tokens again, gets the same frames with the same numbers, and goes on.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final

import msgspec
from django.db import Error

from vinery_accounts.alerts.deliveries import response_ended
from vinery_accounts.base.errors import DATABASE_UNAVAILABLE, KeyRefused
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_accounts.stored import runs
from vinery_accounts.stored.responses import NewResponse
from vinery_accounts.stored.rows import Item, Owner
from vinery_accounts.stored.runs import ClaimedRun, RunLost, StoredRequest
from vinery_serving.core.errors import (
    ConversationInUse,
    EngineLost,
    InvalidKey,
    LimitReached,
    ServingError,
    Unavailable,
)
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway.endpoints.bodies import api_bodies
from vinery_serving.gateway.endpoints.callers import address_of
from vinery_serving.gateway.endpoints.edge import DEPLOYMENT, OWN_HEADERS, REQUEST_ID
from vinery_serving.gateway.endpoints.requests import (
    DETACHED_TIMEOUT_S,
    ApiRequest,
    admitted,
    new_record,
)
from vinery_serving.gateway.endpoints.streaming import STREAM, Streamed
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.memory.keeping import check_room
from vinery_serving.gateway.memory.recalling import StoredMemory, error_of, storage_of
from vinery_serving.gateway.preparing.prepared import Draft, PreparedRequest, Trail, TrailPart
from vinery_serving.gateway.reading.worker_jobs import GENERATION, Head
from vinery_serving.gateway.recording.record import HeldSettlement, RequestRecord
from vinery_serving.gateway.recording.reservation import count_request
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.common.encoding import DONE, KEEP_ALIVE, Exchange, named_frame
from vinery_serving.protocols.responses.exchange import ResponsesExchange
from vinery_serving.protocols.responses.memory import with_id

log = logging.getLogger(__name__)

_READING: Final = GENERATION[Endpoint.RESPONSES]
# Runs at once of one web process; others wait in the database.
_MAX_RUNS: Final = 16
_LOOK_INTERVAL_S: Final = 5.0  # for the runs of dead processes
_RENEW_INTERVAL_S: Final = runs.LEASE_S / 3
_STORE_INTERVAL_S: Final = 0.3  # the frames of a run
_AWAY_S: Final = 1.0  # between two tries to store a result
_FOLLOW_INTERVAL_S: Final = 0.5  # of a run in another process
_SILENCE_S: Final = 15.0
# A response that could not begin for so long fails.
_MAX_WAIT_S: Final = DETACHED_TIMEOUT_S
_PASSING_S: Final = 5.0


class _Frames:
    """The frames of a run so far, by number. Clients get what is stored: after a kill, the next
    process knows it."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.num_stored = 0
        self.has_ended = False
        self._changed = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Take a message as a client's connection does."""
        for frame in message.get("body", b"").split(b"\n\n"):
            if frame.startswith((b"event:", b"data:")) and not frame.endswith(b"[DONE]"):
                self.frames.append(frame + b"\n\n")

    def after(self, number: int) -> list[bytes]:
        """The stored frames with numbers above `number`."""
        return self.frames[number + 1 : self.num_stored]

    def end(self) -> None:
        self.has_ended = True
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S):
                await self._changed.wait()


class BackgroundRuns:
    """The runs of this process. Belongs to the event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._me = runs.this_process()
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by the key of the run
        self._frames: dict[str, _Frames] = {}  # by the id of the response
        self._by_response: dict[str, asyncio.Task[None]] = {}
        self._look_at_s = self._renew_at_s = 0.0
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

        engine, (exchange, _) = await request.read(_READING, body, admit)
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
        new = _new_response(request, exchange, identity, queued)
        try:
            await runtime.recall(partial(runs.create, new, stored))
        except Exception as error:
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
        """Yield the frames with numbers above `after` until the response has ended. Raises
        `ServingError`, before the first frame."""
        while True:
            if (frames := self._frames.get(public_id)) is not None:
                while not (new := frames.after(after)) and not frames.has_ended:
                    await frames.wait()
                    if not frames.after(after):
                        yield KEEP_ALIVE
                after += len(new)
                yield b"".join(new)
                if not frames.has_ended:
                    continue
            found = await self._runtime.recall(
                partial(runs.read_events, project_id, public_id, after)
            )
            for first, events in found.chunks:
                listed = [each + b"\n\n" for each in events.split(b"\n\n") if each]
                new = listed[max(0, after + 1 - first) :]
                after = max(after, first + len(listed) - 1)
                yield b"".join(new)
            if found.is_over:
                yield DONE
                return
            if public_id not in self._frames:
                await asyncio.sleep(_FOLLOW_INTERVAL_S)

    # -- Running

    def _look_soon(self) -> None:
        self._look_at_s = 0.0
        self._looking = asyncio.create_task(self._look(), name="background-look")

    async def _look(self) -> None:
        """Once a second: renew, look for work, and stop what was lost."""
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
            self._frames[run.public_id] = _Frames()
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
        try:
            await _Run(self._runtime, run, frames).do()
        except RunLost:
            log.info("a background response goes on elsewhere or was cancelled")
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("a background response ended with a defect of the server")
            with contextlib.suppress(Error, TimeoutError):
                again = partial(runs.put_back, run, _PASSING_S, counts=True)
                await self._runtime.recall(again)
        finally:
            frames.end()
            self._frames.pop(run.public_id, None)
            self._tasks.pop(run.pk, None)
            self._by_response.pop(run.public_id, None)
            self._look_at_s = 0.0


class _Run:
    """One try of one response."""

    def __init__(self, runtime: Runtime, run: ClaimedRun, frames: _Frames) -> None:
        self._runtime, self._run, self._frames = runtime, run, frames
        known = msgspec.msgpack.decode(run.trail, type=list[TrailPart]) if run.trail else []
        self._trail = Trail(known)
        self._held = HeldSettlement()

    async def do(self) -> None:
        """Raises `RunLost`."""
        run = self._run
        events = await self._in_database(partial(runs.begin, run))
        self._stored = [frame + b"\n\n" for frame in events.split(b"\n\n") if frame]
        self._frames.num_stored = len(self._stored)
        storing = asyncio.create_task(self._store_progress(), name="background-progress")
        try:
            await self._generate()
        except asyncio.CancelledError:
            storing.cancel()
            await self._leave()
            raise
        except ServingError as error:
            if self._is_passing(error):
                await self._in_database(
                    partial(runs.put_back, run, error.retry_after_s or _PASSING_S)
                )
                return
            await self._fail(error)
        finally:
            storing.cancel()
        await self._finish()

    async def _generate(self) -> None:
        run, request = self._run, self._run.request
        caller = self._caller()
        owner = caller.key_id or request.address
        with api_bodies().claim(owner) as claim:
            api = ApiRequest(
                self._runtime,
                self._scope(),
                self._frames.send,
                caller,
                owner,
                claim,
                Endpoint.RESPONSES,
                is_detached=True,
            )
            api.memory = StoredMemory(
                self._runtime, caller, run.public_id, claim.keep, is_held=True
            )
            record = new_record(api, request.body, self._held)
            try:
                await self._answer(api, record)
            except ServingError as error:
                if self._is_passing(error):
                    record.forget()
                else:
                    record.fail(error)
                raise
            except asyncio.CancelledError:
                if (ending := record.live.ending) is None:
                    record.forget()
                    raise
                record.fail(ending)
                raise ending from None
            finally:
                record.leave()
                api.memory.release()

    async def _answer(self, api: ApiRequest, record: RequestRecord) -> None:
        """Raises `ServingError` while there are no frames."""
        if self._run.num_tries > runs.MAX_TRIES:
            raise EngineLost("The server ended too often while it ran this response.")

        async def admit(head: Head) -> Engine:
            return admitted(api, record, head)

        read: tuple[Exchange, Draft]
        engine, read = await api.read(_READING, self._run.request.body, admit, record)
        exchange, draft = read
        stored = self._run.request
        identity = AnswerIdentity(stored.token, stored.created_at, engine.entry.name)
        prepared = PreparedRequest.of(draft, engine, record.meter, identity.token, self._trail)
        record.note_media()
        api.claim.keep(prepared.num_bytes)
        await record.reservation.reserve(prepared)
        await Streamed(api, record, exchange, identity).send(prepared)

    def _caller(self) -> Caller:
        """Raises `InvalidKey`: the key was revoked meanwhile."""
        key_id = self._run.request.key_id
        if key_id is None:
            return ANONYMOUS
        try:
            return self._runtime.keys.caller(key_id)
        except KeyRefused as refused:
            raise InvalidKey(refused.message) from None

    def _scope(self) -> dict[str, Any]:
        request = self._run.request
        return {
            "type": "http",
            "method": "POST",
            "path": f"/{request.tree}/responses",
            "headers": [],
            "client": (request.address, 0) if request.address else None,
            "url_route": {"kwargs": {"tree": request.tree}},
            REQUEST_ID: request.request_id,
            DEPLOYMENT: None,
            OWN_HEADERS: [],
        }

    def _is_passing(self, error: ServingError) -> bool:
        """Whether the run may wait and try again."""
        is_early = not self._frames.frames
        is_young = time.time() - self._run.request.created_at < _MAX_WAIT_S
        kinds = (LimitReached, Unavailable, ConversationInUse)
        return is_early and is_young and isinstance(error, kinds)

    # -- Storing

    async def _store_progress(self) -> None:
        frames, trail = self._frames, self._trail
        while True:
            await asyncio.sleep(_STORE_INTERVAL_S)
            if len(frames.frames) <= frames.num_stored or len(trail.parts) <= len(trail.known):
                continue
            parts = msgspec.msgpack.encode(trail.parts)
            store = partial(runs.progress, self._run, list(frames.frames), parts)
            try:
                frames.num_stored = await self._runtime.recall(store)
            except (Error, TimeoutError):
                continue  # the same frames again, and more
            except RunLost:
                return  # the next renewal ends the run
            frames.wake()

    async def _leave(self) -> None:
        """This process ends: another one goes on at once."""
        with contextlib.suppress(Error, TimeoutError, RunLost):
            await self._runtime.recall(partial(runs.put_back, self._run, 0.0))

    async def _fail(self, error: ServingError) -> None:
        """End a response without frames, or whose frames have no end."""
        found = await self._in_database(partial(runs.payload, self._run))
        members = msgspec.json.decode(found, type=dict[str, Any])
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        if 400 <= error.status < 500 and error.status != 429:
            code = "invalid_prompt"
        failed = {**members, "status": "failed", "error": {"code": code, "message": error.message}}
        # Events of an earlier try stay.
        self._frames.frames = self._frames.frames or self._stored
        states = [("created", {**members, "status": "queued"})] if not self._frames.frames else []
        for name, state in (*states, ("failed", failed)):
            kind, number = f"response.{name}", len(self._frames.frames)
            event = {"type": kind, "response": state, "sequence_number": number}
            await self._frames.send({"body": named_frame(kind, msgspec.json.encode(event))})

    async def _finish(self) -> None:
        last = self._frames.frames[-1].partition(b"data: ")[2]
        final = msgspec.json.decode(last, type=_LastEvent).response
        members = msgspec.json.decode(final, type=dict[str, msgspec.Raw])
        head = msgspec.json.decode(final, type=_Final)
        outputs = []
        for raw in head.output:
            item = msgspec.json.decode(raw, type=_Head)
            outputs.append(Item(item.id, item.type, bytes(raw)))
        await self._in_database(
            partial(
                runs.finish,
                self._run,
                status=head.status,
                payload=msgspec.json.encode({**members, "output": []}),
                outputs=outputs,
                events=list(self._frames.frames),
                settlement=self._held.settlement,
                on_end=response_ended,
            )
        )

    async def _in_database(self, work: Callable[[], Any]) -> Any:
        """Try again while the database is away. Raises `RunLost`."""
        while True:
            try:
                return await self._runtime.recall(work)
            except (*DATABASE_UNAVAILABLE, TimeoutError) as error:
                log.warning(
                    "a background response waits for the database: %s", type(error).__name__
                )
                await asyncio.sleep(_AWAY_S)


class _LastEvent(msgspec.Struct):
    response: msgspec.Raw


class _Final(msgspec.Struct):
    status: str
    output: list[msgspec.Raw]


class _Head(msgspec.Struct):
    id: str
    type: str


def _new_response(
    request: ApiRequest, exchange: ResponsesExchange, identity: AnswerIdentity, queued: bytes
) -> NewResponse:
    kept = exchange.to_keep
    assert kept is not None
    own = (with_id(each, identity.token, at) for at, each in enumerate(kept.items))
    return NewResponse(
        owner=Owner.of(request.caller),
        public_id=identity.id("resp_"),
        status="queued",
        model=identity.model,
        request_id=request.id,
        created_at=datetime.fromtimestamp(identity.created_at, UTC),
        days=storage_of(request.runtime, request.caller).days,
        payload=queued,
        inputs=tuple(Item(each.id, each.kind, each.payload) for each in own),
        outputs=(),
        previous_id=kept.needs.previous_response_id,
        conversation_id=kept.needs.conversation_id,
    )


@cache
def runs_of(runtime: Runtime) -> BackgroundRuns:
    """The background runs of a web process."""
    return BackgroundRuns(runtime)
