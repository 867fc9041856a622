"""The web process's ends of a fork server and of its worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from subprocess import DEVNULL
from typing import Any, Final

from vinery_serving.gateway.workers.fork_server import (
    COMMAND,
    FORK,
    KILL,
    LOAD,
    Options,
    arguments,
)
from vinery_serving.gateway.workers.wire import (
    ANSWER,
    BEGUN,
    CALL,
    ENDED,
    FAILURE,
    MAX_ANSWER_BYTES,
    REFUSAL,
    BrokenAnswer,
    Codec,
    decode_refusal,
)
from vinery_serving.processes.child import ChildProcess
from vinery_serving.processes.hang import CONFIRM_S
from vinery_serving.processes.heartbeat import NO_LIMIT_S, Page

_READ_BYTES: Final = 65536
_STREAM_BYTES: Final = 2**20
_END_TIMEOUT_S: Final = 2.0
# How long a fork server may take from its start to its first sign of life.
_START_LIMIT_S: Final = 60.0
# A function of a module, its arguments after the session, and the body.
Call = tuple[Callable[..., Any], tuple[Any, ...], bytes]
# Local time is in chat templates. The tokenizers' own threads would not survive a fork.
_KEPT_VARIABLES: Final = ("TZ", "PATH", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """What one call of a worker process may use, and how many calls may run and wait."""

    num_processes: int  # that run at the same time
    cpu_s: int  # CPU time of a call
    wall_s: float  # time of a call; longer than `cpu_s`, because engines use the same cores
    memory_bytes: int  # that a call may allocate
    max_waiting: int  # calls of one key that wait; all keys together may have several times as many
    wait_s: float  # how long a call waits for a process
    # After so long without a sign of life the fork server is replaced. 0: never.
    hung_after_s: float = 4.0
    load_s: float = 60.0  # how long it may take to load something, such as a tokenizer


class WorkerLost(Exception):
    """The worker ended before it answered."""


class JobFailed(Exception):
    """A job raised an error that is a defect. The text has its type and stack."""


class WorkerCrashed(JobFailed):
    """A job ended two workers by a signal of its own."""


class ForkServerProcess:
    def __init__(self, jobs: str, limits: WorkLimits) -> None:
        """Starts the process. It serves commands when it has imported its modules."""
        page = Page(_START_LIMIT_S)
        own, others = socket.socketpair()
        limit_s, load_s = NO_LIMIT_S, NO_LIMIT_S
        if limits.hung_after_s:  # the rest of the time confirms that it stands still
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
                leads_group=False,  # it ends with the web process, also if it is stopped
            )
        own.setblocking(False)
        self._control = own
        self._num_forked = 0
        self._received = bytearray()
        self._on_end: dict[int, Callable[[int | None], None]] = {}
        self.is_alive = True
        asyncio.get_running_loop().add_reader(own.fileno(), self._read)
        if limits.hung_after_s:
            self._process.watch()
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def fork(self) -> WorkerProcess:
        """Start a worker. Raises `WorkerLost` if the fork server does not take the command."""
        own, others = socket.socketpair()
        own.setblocking(False)
        self._num_forked += 1
        number = self._num_forked
        with others:
            try:
                command = COMMAND.pack(FORK, number, 0)
                socket.send_fds(self._control, [command], [others.fileno()])
            except OSError:
                own.close()
                self._lose()
                raise WorkerLost from None
        reader, writer = await asyncio.open_unix_connection(sock=own, limit=_STREAM_BYTES)
        worker = WorkerProcess(self, number, reader, writer)
        self._on_end[number] = worker.end
        return worker

    def load(self, wanted: object) -> None:
        contents = pickle.dumps(wanted, protocol=5)
        self._send(COMMAND.pack(LOAD, 0, len(contents)) + contents)

    def kill(self, number: int) -> None:
        if number in self._on_end:
            self._send(COMMAND.pack(KILL, number, 0))

    async def stop(self) -> None:
        self._lose()
        if self._ending is not None:
            await self._ending

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            if self.is_alive and self._control.send(data) == len(data):
                return
        self._lose()

    def _read(self) -> None:
        """Close the connections of workers that have ended."""
        try:
            data = self._control.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._received += data
        while len(self._received) >= ENDED.size:
            number, status = ENDED.unpack_from(self._received)
            del self._received[: ENDED.size]
            if end := self._on_end.pop(number, None):
                end(status)

    def _lose(self) -> None:
        """Without its socket the fork server ends, and its workers with it."""
        if not self.is_alive:
            return
        self.is_alive = False
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        for end in self._on_end.values():
            end(None)
        self._on_end.clear()
        self._ending = asyncio.create_task(self._process.end(_END_TIMEOUT_S))


class WorkerProcess:
    """One worker. Only one call runs at a time."""

    def __init__(
        self,
        server: ForkServerProcess,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._server = server
        self._number = number
        self._reader = reader
        self._writer = writer
        self._status: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.has_begun = False
        # Whether it may serve another session.
        self.is_usable = True

    @property
    def server(self) -> ForkServerProcess:
        return self._server

    async def call(self, codec: Codec, call: Call) -> Any:
        """Return the result of a job. Raises the `ServingError` that it raised, `WorkerLost`,
        `BrokenAnswer`, and `JobFailed`. After anything else than the first, kill the worker."""
        job, arguments, body = call
        named = pickle.dumps((job, arguments), protocol=5)
        was_usable, self.is_usable = self.is_usable, False
        try:
            self._writer.write(CALL.pack(len(named), len(body)) + named)
            self._writer.write(body)
            await self._writer.drain()
            if not self.has_begun:
                await self._reader.readexactly(len(BEGUN))
                self.has_begun = True
            head = await self._reader.readexactly(ANSWER.size)
            kind, is_spent, num_bytes = ANSWER.unpack(head)
            if num_bytes > MAX_ANSWER_BYTES:
                raise BrokenAnswer("size")
            answer = await self._reader.readexactly(num_bytes)
        except (OSError, asyncio.IncompleteReadError):
            raise WorkerLost from None
        if kind == FAILURE:
            raise JobFailed(answer.decode(errors="replace"))
        refusal = decode_refusal(answer) if kind == REFUSAL else None
        result = codec.loads(answer) if refusal is None else None
        self.is_usable = was_usable and not is_spent
        if refusal is not None:
            raise refusal
        return result

    def end_session(self) -> None:
        self._writer.write(CALL.pack(0, 0))

    def kill(self) -> None:
        self.is_usable = False
        self._server.kill(self._number)
        self.close()

    async def exit_status(self) -> int | None:
        """Wait for the end. Returns its status, negative for a signal; None: not known."""
        ended, _ = await asyncio.wait([self._status], timeout=_END_TIMEOUT_S)
        return self._status.result() if ended else None

    def end(self, status: int | None) -> None:
        if not self._status.done():
            self._status.set_result(status)
        self.close()

    def close(self) -> None:
        self.is_usable = False
        self._writer.transport.abort()


def exit_name(status: int | None) -> str:
    return signal.Signals(-status).name if status is not None and status < 0 else str(status)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TOKENIZERS_PARALLELISM": "false",
    }
