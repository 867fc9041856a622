"""Runs services as child processes: starts them, restarts them, and ends them together.

Each service has its own session, so Ctrl-C in a terminal reaches only the supervisor. A service
that ends is restarted: at once if it ran for a while, else after a growing delay. At the end, front
services may finish their requests before the back services, on which they depend, get SIGTERM.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vinery.process import logs, parent_watch

log = logging.getLogger(__name__)

# A service that ran this long was healthy: its restart is not delayed.
_HEALTHY_S = 10.0
# Delays before the 1st, 2nd, ... restart in a row; the last one repeats.
_DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)

# Below 10 s in total, with reserve for a busy machine.
_FRONT_GRACE_S = 5.5
_TOTAL_GRACE_S = 8.0


@dataclass(frozen=True, slots=True)
class Service:
    """A process to keep running. It inherits `fds` under the same numbers."""

    name: str
    argv: tuple[str, ...]
    fds: tuple[int, ...] = ()
    is_front: bool = False


class Supervisor:
    """Runs services until `stop` is called. One use only."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._children: dict[Service, asyncio.subprocess.Process] = {}
        self._restarting: set[Service] = set()
        self._stopping = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` or `kill` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End all services in order. `run` returns within `_TOTAL_GRACE_S`."""
        self._stopping.set()

    def kill(self) -> None:
        self._stopping.set()
        for child in self._children.values():
            _kill_group(child.pid)

    def restart(self, services: Iterable[Service]) -> None:
        """Terminate these services. `run` starts them again without a delay."""
        for service in services:
            if child := self._children.get(service):
                self._restarting.add(service)
                _terminate(child)

    async def run_once(self, service: Service) -> int:
        """Run a process until it ends, and return its exit status. `stop` ends it early."""
        child = await self._start(service)
        ended = asyncio.create_task(self._wait(service, child))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await self._end((service,), (ended,), _TOTAL_GRACE_S)
        return await ended

    async def run(self, services: Iterable[Service]) -> None:
        """Keep the services running until `stop`. Returns when the last process has ended."""
        keepers = {service: asyncio.create_task(self._keep(service)) for service in services}
        all_keepers = asyncio.gather(*keepers.values())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((all_keepers, stopping), return_when=asyncio.FIRST_COMPLETED)
        clock = asyncio.get_running_loop().time
        end_at = clock() + _TOTAL_GRACE_S
        front = [service for service in keepers if service.is_front]
        await self._end_gently(front, [keepers[service] for service in front], _FRONT_GRACE_S)
        back = [service for service in keepers if not service.is_front]
        await self._end(back, keepers.values(), end_at - clock())
        stopping.cancel()
        await all_keepers

    async def _keep(self, service: Service) -> None:
        clock = asyncio.get_running_loop().time
        num_early_ends = 0
        while not self.is_stopping:
            started_at = clock()
            try:
                end = describe(await self._wait(service, await self._start(service)))
            except OSError as error:  # such as no memory: may be temporary
                end = f"it could not start: {error}"
            if self.is_stopping:
                return
            if service in self._restarting:
                self._restarting.discard(service)
                num_early_ends = 0
                continue
            lived_s = clock() - started_at
            num_early_ends = 0 if lived_s >= _HEALTHY_S else num_early_ends + 1
            delay_s = delay_before_restart_s(num_early_ends)
            log.warning(
                "%s ended after %.1f s (%s); restart in %g s",
                *(service.name, lived_s, end, delay_s),
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _start(self, service: Service) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            *service.argv,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=service.fds,
            start_new_session=True,
            env=self._environment
            | {logs.PROCESS_VARIABLE: service.name, parent_watch.PARENT_VARIABLE: str(os.getpid())},
        )
        self._children[service] = child
        if self.is_stopping:  # `stop` was called during the start
            child.terminate()
        return child

    async def _wait(self, service: Service, child: asyncio.subprocess.Process) -> int:
        status = await child.wait()
        # The children of a service end with it, also if it was killed.
        _kill_group(child.pid)
        del self._children[service]
        return status

    async def _end(
        self, services: Iterable[Service], tasks: Iterable[asyncio.Task[object]], grace_s: float
    ) -> None:
        await self._end_gently(services, tasks, grace_s)
        self.kill()
        await asyncio.wait(list(tasks))

    async def _end_gently(
        self, services: Iterable[Service], tasks: Iterable[asyncio.Task[object]], grace_s: float
    ) -> None:
        for service in services:
            if child := self._children.get(service):
                _terminate(child)
        if waiting := list(tasks):
            await asyncio.wait(waiting, timeout=max(grace_s, 0.0))


def delay_before_restart_s(num_early_ends: int) -> float:
    """The delay before the next start in seconds, after this number of early ends in a row."""
    return _DELAYS_S[min(max(num_early_ends - 1, 0), len(_DELAYS_S) - 1)]


def describe(status: int) -> str:
    """An exit status of asyncio, in which signals are negative, in words."""
    if status >= 0:
        return f"exit status {status}"
    return f"killed by {signal.Signals(-status).name}"


def _kill_group(pid: int) -> None:
    """Kill the rest of a service's process group. Each service leads its own group.

    The kernel does not reuse the id while a process of the group is left.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _terminate(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
