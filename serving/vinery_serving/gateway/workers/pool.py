"""The worker processes of one web process.

A client's work has a slot, a process that no other client uses meanwhile, and deadlines. If the
client leaves, the process is killed and replaced: threads could not be ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import socket
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryFile
from typing import Any, Final, TypeVar, TypeVarTuple

from vinery_serving.core.errors import Overloaded, ServingError
from vinery_serving.core.turns import FairTurns, TurnMessages
from vinery_serving.gateway.workers.worker import (
    ANSWER,
    BEGUN,
    CALL,
    ENDED,
    FAILURE,
    FORK,
    KILL,
    LOAD,
    MAX_ANSWER_BYTES,
    REFUSAL,
    BrokenAnswer,
    Codec,
    Options,
    Session,
    arguments,
    decode_refusal,
    too_large,
)
from vinery_serving.processes.child import ChildProcess
from vinery_serving.processes.heartbeat import CONFIRM_S, NO_LIMIT_S, Page

log = logging.getLogger(__name__)

# So many fork servers may start within this time: a lost server is replaced at once.
_MAX_STARTS: Final = 3
_STARTS_WITHIN_S: Final = 10.0
# How a process ends that has used its processor time, and native code that gets no memory.
_LIMITS: Final = (-signal.SIGXCPU, -signal.SIGPROF, -signal.SIGABRT)
_CRASHES: Final = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)
ArgumentsT = TypeVarTuple("ArgumentsT")
ResultT = TypeVar("ResultT")
_MESSAGES: Final = TurnMessages(
    late="The request waited too long for a process that reads it; try again shortly.",
    crowded="Too many large requests wait to be read; try again shortly.",
    too_many="{num} large requests of this key wait to be read already. Send fewer at the same "
    "time.",
)
_STREAM_BYTES: Final = 2**20
_PART_BYTES: Final = 256 * 1024
_END_TIMEOUT_S: Final = 2.0
# How long a fork server may take from the start to the first sign of life.
_START_LIMIT_S: Final = 60.0
# Local time is in chat templates. The tokenizers' own threads would not survive a fork.
_KEPT_VARIABLES: Final = ("TZ", "PATH", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """The limits of a call of a worker process, and of the numbers of calls."""

    num_processes: int  # that run at the same time
    cpu_s: int  # CPU time of a call
    wall_s: float  # time of a call; longer than `cpu_s`, because engines use the same cores
    memory_bytes: int  # that a call may allocate
    max_waiting: int  # calls of one key that wait; all keys together may have several times as many
    wait_s: float  # how long a call waits for a process
    # After so long without a sign of life the fork server is replaced. 0: never.
    hung_after_s: float = 4.0
    load_s: float = 60.0  # how long loading may take, for example of a tokenizer


class JobFailed(Exception):
    """A job raised an error that is a defect. The text has the type and the stack."""


class WorkerCrashed(JobFailed):
    """A job ended its worker by a signal of its own."""


class ForkServerProcess:
    def __init__(self, jobs: str, limits: WorkLimits) -> None:
        """Start the process, which serves commands once the modules are imported."""
        page = Page.new(_START_LIMIT_S)
        own, others = socket.socketpair()
        own.setblocking(False)
        self._control = Connection(own.detach())
        limit_s, load_s = NO_LIMIT_S, NO_LIMIT_S
        if limits.hung_after_s:  # the rest of the time confirms the standstill
            limit_s, load_s = max(limits.hung_after_s - CONFIRM_S, 2.0), limits.load_s
        of_call = limits.cpu_s, limits.memory_bytes
        with others:
            options = Options(others.fileno(), jobs, *of_call, page.fd, limit_s, load_s)
            self._process = ChildProcess(
                arguments(options),
                "the fork server",
                environment=_environment(),
                fds=(others.fileno(),),
                stdout=DEVNULL,
                page=page,
                leads_group=False,  # ends with the web process, even if stopped
            )
        self._num_forked = 0
        self._on_end: dict[int, Callable[[int | None], None]] = {}
        self.is_alive = True
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._read)
        if limits.hung_after_s:
            self._process.watch()
        self._ending: asyncio.Task[None] | None = None

    async def fork(self, limits: WorkLimits, reads: Sequence[Path]) -> Worker:
        """Start a worker. Raises OSError if the fork server does not take the command."""
        own, others = socket.socketpair()
        own.setblocking(False)
        self._num_forked += 1
        number = self._num_forked
        with others:
            self._send(FORK, number, (limits.cpu_s, limits.memory_bytes, reads), fd=others.fileno())
        if not self.is_alive:
            own.close()
            raise ConnectionAbortedError
        reader, writer = await asyncio.open_unix_connection(sock=own, limit=_STREAM_BYTES)
        worker = Worker(self, number, reader, writer)
        self._on_end[number] = worker.end
        return worker

    def load(self, wanted: object) -> None:
        """May be more than the socket takes at once."""
        with TemporaryFile() as file:
            pickle.dump(wanted, file, protocol=5)
            file.seek(0)
            self._send(LOAD, fd=file.fileno())

    def kill(self, number: int) -> None:
        if number in self._on_end:
            self._send(KILL, number)

    async def stop(self) -> None:
        self._lose()
        if self._ending is not None:
            await self._ending

    def _send(
        self, command: str, number: int = 0, wanted: object = None, fd: int | None = None
    ) -> None:
        try:
            self._control.send((command, number, wanted))
            if fd is not None:
                send_handle(self._control, fd, None)
        except OSError:  # also where the fork server does not read
            self._lose()

    def _read(self) -> None:
        try:
            number, status = ENDED.unpack(self._control.recv_bytes(ENDED.size))
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self._lose()
            return
        if end := self._on_end.pop(number, None):
            end(status)

    def _lose(self) -> None:
        """Close the socket, which ends the fork server and the workers."""
        if not self.is_alive:
            return
        self.is_alive = False
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        for end in self._on_end.values():
            end(None)
        self._on_end.clear()
        self._ending = asyncio.create_task(self._process.end(_END_TIMEOUT_S))


class Worker:
    """A worker process. The calls of one client share a session, and run one after the other."""

    def __init__(
        self,
        server: ForkServerProcess,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.server, self._number, self._reader, self._writer = server, number, reader, writer
        self._status: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._has_begun = False
        self.is_usable = True  # whether the process may serve another session

    def begin_session(self, codec: Codec, kind: str, wall_s: float) -> None:
        self._codec, self._kind, self._wall_s = codec, kind, wall_s
        # The field that the client must change if a call exceeds its limits; None: not known.
        self.param: str | None = None

    async def call(
        self,
        job: Callable[[Session, *ArgumentsT], ResultT],
        *arguments: *ArgumentsT,
        body: bytes = b"",
    ) -> ResultT:
        """Return the result of a job, a function of a module. Raises the job's `ServingError`, a
        refusal for a call over the limits, `Overloaded` if the process is lost otherwise,
        `BrokenAnswer`, and `JobFailed`. After any error but the job's the process serves no other
        session."""
        was_usable, self.is_usable = self.is_usable, False
        try:
            async with asyncio.timeout(self._wall_s):
                await self._send(pickle.dumps((job, arguments), protocol=5), body)
                kind, is_spent, answer = await self._receive()
        except TimeoutError:
            raise (too_large(self.param) if self._has_begun else _replaced()) from None
        except (OSError, asyncio.IncompleteReadError):
            raise self._error_of(await self._exit_status()) from None
        if kind == FAILURE:
            raise JobFailed(answer.decode(errors="replace"))
        if kind == REFUSAL:
            refusal = decode_refusal(answer)
            self.is_usable = was_usable and not is_spent
            raise refusal
        result: ResultT = self._codec.loads(answer)
        self.is_usable = was_usable and not is_spent
        return result

    async def _send(self, named: bytes, body: bytes) -> None:
        self._writer.write(CALL.pack(len(named), len(body)) + named)
        for at in range(0, len(body), _PART_BYTES):  # other tasks run between
            self._writer.write(memoryview(body)[at : at + _PART_BYTES])
            await self._writer.drain()

    async def _receive(self) -> tuple[bytes, bool, bytes]:
        if not self._has_begun:
            await self._reader.readexactly(len(BEGUN))
            self._has_begun = True
        kind, is_spent, num_bytes = ANSWER.unpack(await self._reader.readexactly(ANSWER.size))
        if num_bytes > MAX_ANSWER_BYTES:
            raise BrokenAnswer("size")
        return kind, is_spent, await self._reader.readexactly(num_bytes)

    def _error_of(self, status: int | None) -> Exception:
        named = {"status": exit_name(status), "kind": self._kind}
        log.warning("a worker process ended during its work", extra={"fields": named})
        if status in _LIMITS:
            return too_large(self.param)
        return WorkerCrashed(exit_name(status)) if status in _CRASHES else _replaced()

    def use_once(self) -> None:
        self.is_usable = False

    def end_session(self) -> None:
        self._writer.write(CALL.pack(0, 0))

    def kill(self) -> None:
        self.server.kill(self._number)
        self._close()

    async def _exit_status(self) -> int | None:
        """Wait for the end. Returns its status, negative for a signal; None: not known."""
        ended, _ = await asyncio.wait([self._status], timeout=_END_TIMEOUT_S)
        return self._status.result() if ended else None

    def end(self, status: int | None) -> None:
        if not self._status.done():
            self._status.set_result(status)
        self._close()

    def _close(self) -> None:
        self.is_usable = False
        self._writer.transport.abort()


def exit_name(status: int | None) -> str:
    return signal.Signals(-status).name if status is not None and status < 0 else str(status)


def _environment() -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TOKENIZERS_PARALLELISM": "false",
    }


def _replaced() -> Overloaded:
    return Overloaded("The process that reads requests was replaced; try again.")


class WorkerPool:
    """Belongs to the event loop. `jobs` names a module with a `CODEC` of results, and two functions
    that load what many calls need: `load` before the fork, and never raises; `before_call` the
    rest, from the arguments of a call, without limits, and may raise `ServingError`."""

    def __init__(self, jobs: str, limits: WorkLimits, base: WorkerPool | None = None) -> None:
        """With `base`, the processes come from that pool's fork server."""
        self._jobs, self._base, self.limits = jobs, base, limits
        self.turns = FairTurns(
            limits.num_processes,
            max_waiting=limits.max_waiting,
            wait_s=limits.wait_s,
            refuse=_MESSAGES,
        )
        self._server: ForkServerProcess | None = None
        self._starts_s: deque[float] = deque(maxlen=_MAX_STARTS)
        self._idle: deque[Worker] = deque()
        self._loaded: object = None
        self._readable: Sequence[Path] = ()
        self.num_ended: Counter[tuple[str, str]] = Counter()  # by kind of work and end
        self.num_killed = self.num_starts = 0

    @cached_property
    def jobs(self) -> Any:
        return import_module(self._jobs)

    def apart(self, limits: WorkLimits) -> WorkerPool:
        """Return a pool with slots and limits of its own, and with the same fork server."""
        return WorkerPool(self._jobs, limits, self)

    async def stop(self) -> None:
        server, self._server = self._server, None
        self._idle.clear()
        if server is not None:
            await server.stop()

    def load(self, wanted: object) -> None:
        """Load what many calls need, in all processes that start from now on."""
        if wanted == self._loaded:
            return
        self._loaded = wanted
        self._kill_idle()
        if self._server is not None and self._server.is_alive:
            self._server.load(wanted)

    def allow(self, paths: Iterable[Path]) -> None:
        """Set the folders and files that processes may read which start from now on: those of
        models. A process reads nothing else but its libraries."""
        allowed = tuple(sorted(set(paths)))
        if allowed != self._readable:
            self._readable = allowed
            self._kill_idle()

    def _kill_idle(self) -> None:
        for process in self._idle:
            process.kill()
        self._idle.clear()

    @contextlib.asynccontextmanager
    async def worker(
        self, key: Hashable, kind: str, reads: Sequence[Path] | None = None
    ) -> AsyncIterator[Worker]:
        """Hold a worker for one client, in the turn of its key; `kind` is for the metrics. A worker
        with `reads` is new, reads nothing else, and serves once. Leaving while a call runs kills
        the process. Raises `ServingError` if no worker is available."""
        outcome = "failed"
        try:
            async with self.turns.turn(key):
                worker = await (self._take() if reads is None else self._fork(reads))
                worker.begin_session(self.jobs.CODEC, kind, self.limits.wall_s)
                if reads is not None:
                    worker.use_once()
                try:
                    yield worker
                finally:
                    self._give_back(worker)
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

    async def _take(self) -> Worker:
        while self._idle:
            process = self._idle.pop()  # the latest, which has most in its caches
            if process.is_usable:
                return process
        return await self._fork()

    async def _fork(self, reads: Sequence[Path] | None = None) -> Worker:
        if reads is None:
            of_base = () if self._base is None else self._base._readable
            reads = (*of_base, *self._readable)
        for _ in range(2):
            try:
                return await self.live_server().fork(self.limits, reads)
            except OSError:
                continue
        raise Overloaded("No process can be started to read the request; try again shortly.")

    def _give_back(self, process: Worker) -> None:
        if process.is_usable and process.server is self._server and process.server.is_alive:
            process.end_session()
            self._idle.append(process)
            return
        self.num_killed += 1
        process.kill()

    def live_server(self) -> ForkServerProcess:
        """Raises `Overloaded` while fork servers end as soon as they start."""
        if self._base is not None:
            return self._base.live_server()
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
