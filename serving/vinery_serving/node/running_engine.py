"""A running engine, whether this node has started it or another one has, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import ENGINE_MODULES, EngineConfig
from vinery_serving.logs.file import open_log

_END_TIMEOUT_S: Final = 3.0
# Stands for a model's name in the list of processes.
_SPARE: Final = "spare"


class RunningEngine(Protocol):
    """A `StartedEngine`, or an `adoption.AdoptedEngine`."""

    @property
    def pid(self) -> int:
        """The id of the process, which leads a process group."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        ...

    async def wait(self) -> str:
        """Wait for its end. Returns how it has ended, as a sentence."""
        ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process if it has not ended."""
        ...

    def close(self) -> None:
        """Release it after its end."""
        ...


class StartedEngine:
    """A process that this node has started."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, config: EngineConfig, environment: Mapping[str, str]) -> StartedEngine:
        """Start a process with this configuration. Its session is its own: it is not killed with
        the processes of its node."""
        with _standard_error(config) as stderr:
            words = (ENGINE_MODULES[config.task], config.name)
            engine = cls(await _start(words, environment, config.heartbeat_fd, stderr))
        engine.configure(config)
        return engine

    @classmethod
    async def start_spare(cls, environment: Mapping[str, str], heartbeat_fd: int) -> StartedEngine:
        """Start a process for a model that generates text, which waits for `configure`."""
        words = (ENGINE_MODULES[Task.CHAT], _SPARE)
        return cls(await _start(words, environment, heartbeat_fd, None))

    def configure(self, config: EngineConfig) -> None:
        """Let the process load a model. If it has ended, its report shows that."""
        assert self._process.stdin is not None
        self._process.stdin.write(config.to_line())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def was_killed(self) -> bool:
        """Whether a signal that a process cannot cause by its own mistake has ended it."""
        return self._process.returncode in (-signal.SIGKILL, -signal.SIGTERM)

    async def report(self) -> bytes:
        """The next line that it writes about itself; b"" when it has ended."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def wait(self) -> str:
        return f"The engine process ended with status {await self._process.wait()}."

    def send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def close(self) -> None:
        """asyncio has released it."""


async def _start(
    words: Sequence[str],
    environment: Mapping[str, str],
    heartbeat_fd: int | None,
    stderr: int | None,
) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words),
        stdin=PIPE,
        stdout=PIPE,
        stderr=stderr,
        env=environment,
        pass_fds=() if heartbeat_fd is None else (heartbeat_fd,),
        start_new_session=True,
    )


@contextlib.contextmanager
def _standard_error(config: EngineConfig) -> Iterator[int | None]:
    """The engine's log file. None, which is that of the node: the file cannot be opened."""
    try:
        fd = None if config.log is None else open_log(config.log.path)
    except OSError:
        fd = None
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


async def end_engine(engine: RunningEngine) -> None:
    """Terminate an engine, and kill it with its own children if it does not end in time."""
    if not engine.has_ended:
        engine.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await engine.wait()
        except TimeoutError:
            kill_engine(engine)
            await engine.wait()
    engine.close()


def kill_engine(engine: RunningEngine) -> None:
    """Kill an engine with its own children. While it has not ended, the kernel gives the id of its
    group to no other one."""
    if not engine.has_ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
