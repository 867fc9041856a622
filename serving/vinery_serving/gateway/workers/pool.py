"""The worker processes of one web process.

A client's work has a slot, a process that no other client uses meanwhile, and deadlines. If the
client leaves, the process is killed and replaced: threads could not be ended.
"""

import asyncio
import logging
import signal
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import cached_property
from importlib import import_module
from typing import Any, Final, TypeVar, TypeVarTuple

from vinery_serving.core.errors import Overloaded, ServingError
from vinery_serving.core.turns import FairTurns, TurnMessages
from vinery_serving.gateway.workers.process import (
    Call,
    ForkServerProcess,
    JobFailed,
    WorkerCrashed,
    WorkerLost,
    WorkerProcess,
    WorkLimits,
    exit_name,
)
from vinery_serving.gateway.workers.wire import BrokenAnswer, Codec
from vinery_serving.gateway.workers.worker import Session, too_large

log = logging.getLogger(__name__)

# So many fork servers may start within this time. A lost one is replaced at once, but not again
# and again.
_MAX_STARTS: Final = 3
_STARTS_WITHIN_S: Final = 10.0
# How a process ends that has used its processor time.
_LIMITS: Final = (-signal.SIGXCPU, -signal.SIGPROF)
_CRASHES: Final = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)
ArgumentsT = TypeVarTuple("ArgumentsT")
ResultT = TypeVar("ResultT")
_MESSAGES: Final = TurnMessages(
    late="The request waited too long for a process that reads it; try again shortly.",
    crowded="Too many large requests wait to be read; try again shortly.",
    too_many="{num} large requests of this key wait to be read already. Send fewer at the same "
    "time.",
)


class Worker:
    """A worker process for one client's calls, which share a session.

    A process that is lost is replaced once, and the new one does the calls of the session again.
    """

    def __init__(self, pool: "WorkerPool", process: WorkerProcess, kind: str) -> None:
        self._pool = pool
        self.process = process
        self._kind = kind
        self._calls: list[Call] = []  # of the session, that were answered
        self._is_replaced = False
        self._serves_once = False
        # The field that the client must change if a call exceeds its limits; None: not known.
        self.param: str | None = None

    async def call(
        self,
        job: Callable[[Session, *ArgumentsT], ResultT],
        *arguments: *ArgumentsT,
        body: bytes = b"",
    ) -> ResultT:
        """Return the result of a job, which is a function of a module. Raises `ServingError`: that
        of the job, a refusal if it exceeds its limits, or `Overloaded` if its process is lost for
        another reason."""
        call: Call = (job, arguments, body)
        result: ResultT
        try:
            result = await self._run(call)
        except WorkerLost:
            await self._replace()
            for earlier in self._calls:
                await self._run(earlier)
            result = await self._run(call)
        self._calls.append(call)
        return result

    async def _run(self, call: Call) -> Any:
        process = self.process
        try:
            async with asyncio.timeout(self._pool.limits.wall_s):
                return await process.call(self._pool.codec, call)
        except TimeoutError:
            raise (too_large(self.param) if process.has_begun else _replaced()) from None
        except WorkerLost:
            self._check(await process.exit_status())
            raise

    def _check(self, status: int | None) -> None:
        """Raise the error of a lost process, unless it may be replaced."""
        named = {"status": exit_name(status), "kind": self._kind}
        log.warning("a worker process ended during its work", extra={"fields": named})
        # Native code aborts when it gets no memory.
        if status in _LIMITS or (self._is_replaced and status == -signal.SIGABRT):
            raise too_large(self.param) from None
        if self._is_replaced and status in _CRASHES:
            raise WorkerCrashed(exit_name(status)) from None
        if self._is_replaced or not self.process.server.is_alive:
            raise _replaced() from None

    async def _replace(self) -> None:
        self._is_replaced = True
        self.process.kill()
        self.process = await self._pool.fork()
        self.process.is_usable = not self._serves_once

    def use_once(self) -> None:
        self._serves_once = True
        self.process.is_usable = False


def _replaced() -> Overloaded:
    return Overloaded("The process that reads requests was replaced; try again.")


class WorkerPool:
    """Belongs to the event loop. `jobs` is a module as `worker.JobsModule` describes."""

    def __init__(self, jobs: str, limits: WorkLimits) -> None:
        self._jobs = jobs
        self.limits = limits
        self._turns = FairTurns(
            limits.num_processes,
            max_waiting=limits.max_waiting,
            wait_s=limits.wait_s,
            refuse=_MESSAGES,
        )
        self._server: ForkServerProcess | None = None
        self._starts_s: deque[float] = deque(maxlen=_MAX_STARTS)
        self._idle: deque[WorkerProcess] = deque()
        self._loaded: object = None
        # By kind of work and by how it ended.
        self.num_ended: Counter[tuple[str, str]] = Counter()
        self.num_killed = 0
        self.num_starts = 0

    @cached_property
    def codec(self) -> Codec:
        return Codec(import_module(self._jobs).RESULT_TYPES)

    @property
    def num_running(self) -> int:
        return self._turns.num_running

    @property
    def num_waiting(self) -> int:
        return self._turns.num_waiting

    def start(self) -> None:
        self._live_server()

    async def stop(self) -> None:
        """End all processes. Work that still runs is refused."""
        server, self._server = self._server, None
        self._idle.clear()
        if server is not None:
            await server.stop()

    def load(self, wanted: object) -> None:
        """Load what many calls need, in all processes that start from now on."""
        if wanted == self._loaded:
            return
        self._loaded = wanted
        for process in self._idle:
            process.kill()
        self._idle.clear()
        if self._server is not None and self._server.is_alive:
            self._server.load(wanted)

    @asynccontextmanager
    async def worker(self, key: Hashable, kind: str) -> AsyncIterator[Worker]:
        """Hold a worker for one client, in the turn of its key; `kind` is for the metrics. Leaving
        while a call runs kills the process. Raises `ServingError` if no worker is available."""
        outcome = "failed"
        try:
            async with self._turns.turn(key):
                process = await self._take()
                worker = Worker(self, process, kind)
                try:
                    yield worker
                finally:
                    self._give_back(worker.process)
            outcome = "ok"
        except asyncio.CancelledError:
            outcome = "left"
            raise
        except ServingError as error:
            outcome = "refused" if error.status < 500 else "overloaded"
            raise
        except (JobFailed, BrokenAnswer) as error:
            log.error("work failed: %s", error, extra={"fields": {"kind": kind}})
            raise
        finally:
            self.num_ended[kind, outcome] += 1

    async def _take(self) -> WorkerProcess:
        while self._idle:
            process = self._idle.pop()  # the latest, which has most in its caches
            if process.is_usable:
                return process
        return await self.fork()

    async def fork(self) -> WorkerProcess:
        """Start a process. Raises `Overloaded` if none can be started."""
        for _ in range(2):
            try:
                return await self._live_server().fork()
            except (WorkerLost, OSError):
                continue
        raise Overloaded("No process can be started to read the request; try again shortly.")

    def _give_back(self, process: WorkerProcess) -> None:
        if process.is_usable and process.server is self._server and process.server.is_alive:
            process.end_session()
            self._idle.append(process)
            return
        self.num_killed += 1
        process.kill()

    def _live_server(self) -> ForkServerProcess:
        """Raises `Overloaded` while fork servers end as soon as they start."""
        if self._server is not None and self._server.is_alive:
            return self._server
        now_s = asyncio.get_running_loop().time()
        starts_s = self._starts_s
        if len(starts_s) == _MAX_STARTS and now_s - starts_s[0] < _STARTS_WITHIN_S:
            log.error("the fork server ends as soon as it starts")
            raise Overloaded("The process that reads requests is being replaced; try again.")
        if self._server is not None:
            log.warning("the fork server has ended and is replaced")
        self._idle.clear()
        starts_s.append(now_s)
        self.num_starts += 1
        self._server = ForkServerProcess(self._jobs, self.limits)
        if self._loaded is not None:
            self._server.load(self._loaded)
        return self._server
