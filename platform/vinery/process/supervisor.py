"""Keeps processes running, and ends them together.

Each service is a process in a session of its own, so that Ctrl-C in a terminal reaches the
supervisor alone. A service that ends is started again, at once if it had lived a while, and
after a growing delay if it dies young; the supervisor never gives up. Its own end has two
steps: services at the front get SIGTERM first and may finish what they answer, then those
at the back on which the front depends. Whatever is left after a grace is killed.

Linux and macOS only. Knows nothing of what the services are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vinery.process import logs
from vinery.process import parent_watch as tether

log = logging.getLogger(__name__)

# A service that lived this long was healthy: its next start is not delayed.
_HEALTHY_S = 10.0
# Delays before the 1st, 2nd, ... restart in a row; the last one repeats.
_DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)

# Together under 10 s, with time to spare for a busy machine.
_FRONT_GRACE_S = 5.5
_TOTAL_GRACE_S = 8.0


@dataclass(frozen=True, slots=True)
class Service:
    """A process that must run. `fds` stay open in it, under the same numbers."""

    name: str
    argv: tuple[str, ...]
    fds: tuple[int, ...] = ()
    is_front: bool = False


class Supervisor:
    """Runs services until `stop` is called. One use only."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._children: dict[Service, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        """Whether an end was asked for."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask for an orderly end. `run` returns within `_TOTAL_GRACE_S`."""
        self._stopping.set()

    def kill(self) -> None:
        """Kill every process now."""
        self._stopping.set()
        for child in self._children.values():
            _kill_group(child.pid)

    async def run_once(self, service: Service) -> int:
        """Run a process to its end and return its exit status. `stop` ends it early."""
        child = await self._start(service)
        ended = asyncio.create_task(self._wait(service, child))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await self._end((service,), (ended,), _TOTAL_GRACE_S)
        return await ended

    async def run(self, services: Iterable[Service]) -> None:
        """Keep the services running. Returns after `stop`, when the last process is gone."""
        keepers = {service: asyncio.create_task(self._keep(service)) for service in services}
        broken = asyncio.gather(*keepers.values())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((broken, stopping), return_when=asyncio.FIRST_COMPLETED)
        await self._end_in_order(keepers)
        stopping.cancel()
        await broken

    async def _keep(self, service: Service) -> None:
        clock = asyncio.get_running_loop().time
        num_early_ends = 0
        while not self.is_stopping:
            started_at = clock()
            end = await self._live(service)
            if self.is_stopping:
                return
            lived_s = clock() - started_at
            num_early_ends = 0 if lived_s >= _HEALTHY_S else num_early_ends + 1
            delay_s = delay_before_restart_s(num_early_ends)
            log.warning(
                "%s ended after %.1f s (%s); it starts again in %g s",
                *(service.name, lived_s, end, delay_s),
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _live(self, service: Service) -> str:
        """Run a service from its start to its end, and return how it ended in words."""
        try:
            child = await self._start(service)
        except OSError as error:  # no memory, no process ids: both may come back
            return f"it could not start: {error}"
        return describe(await self._wait(service, child))

    async def _start(self, service: Service) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            *service.argv,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=service.fds,
            start_new_session=True,
            env=self._environment
            | {logs.PROCESS_VARIABLE: service.name, tether.PARENT_VARIABLE: str(os.getpid())},
        )
        self._children[service] = child
        if self.is_stopping:  # asked for while the process was made
            child.terminate()
        return child

    async def _wait(self, service: Service, child: asyncio.subprocess.Process) -> int:
        status = await child.wait()
        # What a service started ends with it, also when the service was killed.
        _kill_group(child.pid)
        del self._children[service]
        return status

    async def _end_in_order(self, keepers: Mapping[Service, asyncio.Task[None]]) -> None:
        front = [service for service in keepers if service.is_front]
        back = [service for service in keepers if not service.is_front]
        began_at = asyncio.get_running_loop().time()
        await self._terminate(front, [keepers[service] for service in front], _FRONT_GRACE_S)
        spent_s = asyncio.get_running_loop().time() - began_at
        await self._end(back, list(keepers.values()), _TOTAL_GRACE_S - spent_s)

    async def _end(
        self, services: Iterable[Service], tasks: Iterable[asyncio.Task[object]], grace_s: float
    ) -> None:
        await self._terminate(services, tasks, grace_s)
        self.kill()
        await asyncio.wait(list(tasks))

    async def _terminate(
        self, services: Iterable[Service], tasks: Iterable[asyncio.Task[object]], grace_s: float
    ) -> None:
        for service in services:
            if child := self._children.get(service):
                with contextlib.suppress(ProcessLookupError):
                    child.terminate()
        if waiting := list(tasks):
            await asyncio.wait(waiting, timeout=max(grace_s, 0.0))


def delay_before_restart_s(num_early_ends: int) -> float:
    """How long to wait before the next start, after so many early ends in a row."""
    return _DELAYS_S[min(max(num_early_ends - 1, 0), len(_DELAYS_S) - 1)]


def describe(status: int) -> str:
    """An exit status in words, as `asyncio` gives it: negative for a signal."""
    if status >= 0:
        return f"exit status {status}"
    return f"killed by {signal.Signals(-status).name}"


def _kill_group(pid: int) -> None:
    """Kill what is left of a service's process group; each service leads its own.

    The kernel gives the number to nobody else while one process of the group is left.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
