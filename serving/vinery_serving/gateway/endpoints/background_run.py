"""One try of a background response.

The stored request is read like a client's, and the answer goes into a list of frames instead of a
socket. Several times a second the new frames are stored with the tokens of which they are made. So
the next process reads these tokens again, gets the same frames with the same numbers, and goes on.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, Final

import msgspec
from django.db import Error

from vinery_accounts.alerts.deliveries import response_ended
from vinery_accounts.base.errors import DATABASE_UNAVAILABLE, KeyRefused
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_accounts.stored import runs
from vinery_accounts.stored.runs import ClaimedRun, RunLost
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
from vinery_serving.gateway.endpoints.compacting import run_both
from vinery_serving.gateway.endpoints.edge import DEPLOYMENT, OWN_HEADERS, REQUEST_ID
from vinery_serving.gateway.endpoints.requests import (
    DETACHED_TIMEOUT_S,
    ApiRequest,
    admitted,
    new_record,
)
from vinery_serving.gateway.endpoints.streaming import Streamed
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.memory.keeping import parts_of
from vinery_serving.gateway.memory.recalling import StoredMemory
from vinery_serving.gateway.preparing.prepared import Draft, PreparedRequest, Trail, TrailPart
from vinery_serving.gateway.reading.worker_jobs import GENERATION, Head
from vinery_serving.gateway.recording.record import HeldSettlement, RequestRecord
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.protocols.common.encoding import Exchange, named_frame

log = logging.getLogger(__name__)

READING: Final = GENERATION[Endpoint.RESPONSES]
_STORE_INTERVAL_S: Final = 0.3  # the frames of a run
_AWAY_S: Final = 1.0  # between two tries to store a result
SILENCE_S: Final = 15.0
# A response that could not begin for so long fails.
_MAX_WAIT_S: Final = DETACHED_TIMEOUT_S
PASSING_S: Final = 5.0  # before the next try
_MAX_LEASES: Final = 16  # the latest of one response; nearly all have settled theirs


class Frames:
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
            async with asyncio.timeout(SILENCE_S):
                await self._changed.wait()


class Run:
    """One try of one response."""

    def __init__(self, runtime: Runtime, run: ClaimedRun, frames: Frames) -> None:
        self._runtime, self._run, self._frames = runtime, run, frames
        known = msgspec.msgpack.decode(run.trail, type=list[TrailPart]) if run.trail else []
        self._trail = Trail(known)
        self.held = HeldSettlement(_lease_id(run, run.lease_number))

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
                    partial(runs.put_back, run, error.retry_after_s or PASSING_S)
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
            record = new_record(api, request.body, self.held)
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
                    record.leave()
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
        engine, read = await api.read(READING, self._run.request.body, admit, record)
        exchange, draft = read
        stored = self._run.request
        identity = AnswerIdentity(stored.token, stored.created_at, engine.entry.name)
        prepared = PreparedRequest.of(draft, engine, record.meter, identity.token, self._trail)
        record.note_media()
        await self._runtime.limits.release(self._earlier_leases())
        api.claim.keep(prepared.num_bytes + len(api.body))
        await record.reservation.reserve(prepared)
        both = run_both(api, record, prepared, exchange) if draft.summarizes else None
        await Streamed(api, record, exchange, identity).send(prepared, both)

    def _earlier_leases(self) -> list[str]:
        """The ids of what processes that were killed may have reserved."""
        last = self._run.lease_number
        return [_lease_id(self._run, each) for each in range(max(1, last - _MAX_LEASES), last)]

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
        status, payload, outputs = parts_of(bytes(final))
        await self._in_database(
            partial(
                runs.finish,
                self._run,
                status=status,
                payload=payload,
                outputs=outputs,
                events=list(self._frames.frames),
                settlement=self.held.settlement,
                on_end=response_ended,
            )
        )
        self.held.release(is_recorded=True)

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


def _lease_id(run: ClaimedRun, number: int) -> str:
    return f"{run.request.request_id}.{number}"


class _LastEvent(msgspec.Struct):
    response: msgspec.Raw
