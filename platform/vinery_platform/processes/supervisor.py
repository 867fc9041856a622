"""Runs services as child processes: their start, restart, and common end.

Each service has its own session, so Ctrl-C in a terminal reaches only the supervisor. Services are
forks of the one that `forks_others`, or programs while that one cannot. At the end, front services
may finish their requests before the back services, on which they depend, get SIGTERM.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Final

from vinery_platform.config.env import SettingError
from vinery_platform.processes import heartbeats
from vinery_platform.processes import log_setup as logs
from vinery_platform.processes.memory import resident_bytes
from vinery_serving.node.adoption import KeptEngines
from vinery_serving.processes import parent
from vinery_serving.processes.child import ChildProcess, kill_group
from vinery_serving.processes.forks import Forks
from vinery_serving.processes.heartbeat import CONFIRM_S, NO_LIMIT_S, Page
from vinery_serving.processes.parent import prctl
from vinery_serving.processes.upkeep import until_next

log = logging.getLogger(__name__)

# How long a service may take from the start to the first sign of life.
START_LIMIT_S = 120.0
# A service that ran this long was healthy: its restart is not delayed.
_HEALTHY_S = 10.0
# Delays before the 1st, 2nd, ... restart in a row; the last one repeats.
_DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)

# The time for services to end in order, after the time for running requests: below 10 s in total,
# with reserve for a busy machine.
_FRONT_GRACE_S = 5.5
_TOTAL_GRACE_S = 8.0

# How often to look at memory, and how many looks in a row must find too much: peaks pass.
_MEMORY_INTERVAL_S = 2.0
_NUM_MEMORY_LOOKS = 5
# How long after a successor that did not serve the next one is started.
_REPLACE_AGAIN_S = 60.0
_SERVING_POLL_S = 0.1
# How long the requests of a replaced process may take: VINERY_REQUEST_TIMEOUT_S is at most a day,
# and the process itself obeys this timeout.
_IDLE_WITHIN_S = 25 * 3600.0


@dataclass(frozen=True, slots=True)
class Service:
    """A process to keep running. It inherits `fds` under the same numbers."""

    name: str
    argv: tuple[str, ...]
    fds: tuple[int, ...] = ()
    is_front: bool = False
    # Whether it gives signs of life, see `heartbeats`.
    beats: bool = False
    # Whether a successor can take over while it ends without losing a request, see
    # `heartbeats.END_WHEN_IDLE`.
    is_replaceable: bool = False
    max_memory_mb: int = 0  # above so much memory it is replaced; 0: any amount
    environment: tuple[tuple[str, str], ...] = ()  # beside the supervisor's
    forks_others: bool = False  # see `forks`


class Child(ChildProcess):
    """A process of a service. `ended` is done when the process and its children have ended."""

    def __init__(
        self,
        service: Service,
        environment: Mapping[str, str],
        more: Mapping[str, str],
        hung_after_s: float,
        forks: Forks | None,
    ) -> None:
        """Start it, as a fork if possible, which has `environment` already. Raises OSError."""
        own = {logs.PROCESS_VARIABLE: service.name, parent.PARENT_VARIABLE: str(os.getpid())}
        own |= {**dict(service.environment), **more}
        page, is_watched = None, hung_after_s > 0
        if service.beats:
            page = Page.new(START_LIMIT_S if is_watched else NO_LIMIT_S)
            # The rest of the time confirms that it stands still.
            limit_s = max(hung_after_s - CONFIRM_S, 1.0) if is_watched else NO_LIMIT_S
            own[heartbeats.VARIABLE] = f"{page.fd}:{limit_s:g}"
        self.forks = Forks(own) if service.forks_others else None
        if self.forks is not None:
            page = Page.new(NO_LIMIT_S)  # gives no sign of life, but may be stopped
        super().__init__(
            service.argv,
            service.name,
            environment={**environment, **own},
            fds=service.fds if self.forks is None else (self.forks.theirs.fileno(),),
            page=page,
            start=Popen if forks is None else partial(forks.start, own),
        )
        if is_watched:
            self.watch()
        self.ended: asyncio.Task[int] = asyncio.create_task(self._run_to_end())

    @property
    def is_serving(self) -> bool:
        """Whether the process takes requests, by the report in its page, or forks others."""
        if self.ended.done():
            return False
        if self.forks is not None:
            return self.forks.is_ready
        return self.page is not None and self.page.is_serving

    @property
    def resident_bytes(self) -> int:
        """The memory of the process, without its children; 0 after the end."""
        return 0 if self.ended.done() else resident_bytes(self.pid)

    async def _run_to_end(self) -> int:
        status = await self.wait()
        await self.end()  # the children of a service end with it, also after a kill
        if self.forks is not None:
            self.forks.close()
        return status


class Supervisor:
    """Runs services until `stop` is called. One use only. A service that gives no sign of life for
    about `hung_after_s` is replaced; 0: none is. At the end, front services may go on for `drain_s`
    with the requests that run."""

    def __init__(
        self, environment: Mapping[str, str], hung_after_s: float = 0.0, drain_s: float = 0.0
    ) -> None:
        self._environment = dict(environment)
        self._drain_s = drain_s
        self._hung_after_s = hung_after_s
        self._children: dict[Service, Child] = {}  # one present process of each service
        self._others: set[Child] = set()  # successors that start, and predecessors that finish
        self._replaced: dict[Service, asyncio.Future[Child]] = {}
        self._restarting: set[Service] = set()
        self._reloading: asyncio.Task[None] | None = None
        self._finishing: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._keepers: dict[Service, asyncio.Task[None]] = {}

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def pids(self) -> set[int]:
        return {child.pid for child in self._all()}

    def begin(self, service: Service) -> None:
        """Start a service, which `run` then gets, too."""
        self._keepers[service] = asyncio.create_task(self._keep(service))

    def stop(self) -> None:
        """End all services in order. `run` returns within `drain_s` and `_TOTAL_GRACE_S`."""
        self._stopping.set()

    def kill(self) -> None:
        self._stopping.set()
        for child in self._all():
            child.kill()

    def restart(self, services: Iterable[Service]) -> None:
        """Terminate these services. `run` starts them again without a delay."""
        for service in services:
            if child := self._children.get(service):
                self._restarting.add(service)
                child.send_signal(signal.SIGTERM)

    def reload(self, note: Callable[[str], object]) -> None:
        """Replace the processes that can be, one after the other, without losing a request. `note`
        is called when all successors serve, or with the reason why one does not."""
        if self.is_stopping or (self._reloading is not None and not self._reloading.done()):
            return
        self._reloading = asyncio.create_task(self._reload(note))

    async def run_once(self, service: Service) -> int:
        """Run a process until its end, and return the exit status. `stop` ends it early."""
        await self._until_warm()
        child = self._start(service)
        self._children[service] = child
        ended = child.ended
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await self._end((service,), (ended,), _TOTAL_GRACE_S)
        del self._children[service]
        return await ended

    async def run(self, services: Iterable[Service]) -> None:
        """Keep the services running until `stop`. Returns when the last process has ended."""
        for service in services:
            if service not in self._keepers:
                self.begin(service)
        keepers = self._keepers
        all_keepers = asyncio.gather(*keepers.values())
        stopping = asyncio.create_task(self._stopping.wait())
        watching = [
            asyncio.create_task(self._limit_memory(service))
            for service in keepers
            if service.max_memory_mb
        ]
        await asyncio.wait((all_keepers, stopping), return_when=asyncio.FIRST_COMPLETED)
        watching += self._finishing
        if self._reloading is not None:
            watching.append(self._reloading)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        for child in self._all():
            child.unwatch()  # a process that ends may give no further sign
        clock = asyncio.get_running_loop().time
        end_at = clock() + self._drain_s + _TOTAL_GRACE_S
        front = [service for service in keepers if service.is_front]
        others = [child.ended for child in self._others]
        for child in self._others:
            child.send_signal(signal.SIGTERM)
        waiting = [*(keepers[service] for service in front), *others]
        await self._end_gently(front, waiting, self._drain_s + _FRONT_GRACE_S)
        back = [service for service in keepers if not service.is_front]
        await self._end(back, [*keepers.values(), *others], end_at - clock())
        stopping.cancel()
        await all_keepers

    async def _keep(self, service: Service) -> None:
        clock = asyncio.get_running_loop().time
        num_early_ends = 0
        while not self.is_stopping:
            started_at = clock()
            try:
                end = describe(await self._run_to_end(service))
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
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()

    async def _run_to_end(self, service: Service) -> int:
        """Returns the status of the last successor."""
        if not service.forks_others:
            await self._until_warm()
        child = self._start(service)
        while True:
            self._children[service] = child
            replaced = self._replaced[service] = asyncio.get_running_loop().create_future()
            await asyncio.wait((child.ended, replaced), return_when=asyncio.FIRST_COMPLETED)
            if not replaced.done():
                del self._children[service], self._replaced[service]
                return await child.ended
            child = replaced.result()

    def _start(self, service: Service, *, is_successor: bool = False) -> Child:
        mark = {heartbeats.SUCCESSOR_VARIABLE: "1"} if is_successor else {}
        forks = self._forks(service)
        child = Child(service, self._environment, mark, self._hung_after_s, forks)
        if self.is_stopping:  # `stop` was called during the start
            child.send_signal(signal.SIGTERM)
        return child

    def _forks(self, service: Service) -> Forks | None:
        serving = [child for child in self._children.values() if child.forks and child.is_serving]
        return serving[0].forks if serving and not service.forks_others else None

    async def _until_warm(self) -> None:
        """Wait while the process starts that forks others."""
        for child in [child for child in self._children.values() if child.forks]:
            while not (child.is_serving or child.ended.done() or self.is_stopping):
                await asyncio.wait([child.ended], timeout=_SERVING_POLL_S)

    def _all(self) -> list[Child]:
        return [*self._children.values(), *self._others]

    async def _limit_memory(self, service: Service) -> None:
        """Replace the service's process when it keeps too much memory."""
        max_bytes = service.max_memory_mb << 20
        num_looks = 0
        while True:
            await asyncio.sleep(until_next(_MEMORY_INTERVAL_S))
            child = self._children.get(service)
            num_bytes = 0 if child is None else child.resident_bytes
            num_looks = num_looks + 1 if num_bytes > max_bytes else 0
            if child is not None and num_looks >= _NUM_MEMORY_LOOKS:
                num_looks = 0
                log.warning(
                    "%s holds %d MB of memory, above %d MB, and is replaced when its requests end",
                    *(service.name, num_bytes >> 20, service.max_memory_mb),
                )
                if not await self._succeed(service, child):
                    await self._finish(child)
                elif not child.ended.done():
                    await asyncio.sleep(_REPLACE_AGAIN_S)

    async def _reload(self, note: Callable[[str], object]) -> None:
        why_not = ""
        children = sorted(self._children.items(), key=lambda each: not each[0].forks_others)
        for service, child in children:  # so that the others are forks of a new one
            if not service.is_replaceable:
                continue
            if why_not := await self._succeed(service, child):
                break  # the others would not serve either
            log.info("%s is replaced: pid %d finishes its requests", service.name, child.pid)
            task = asyncio.create_task(self._finish(child))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)
        note(why_not)

    async def _succeed(self, service: Service, child: Child) -> str:
        """Start a successor. Returns why `child` goes on serving; empty if the successor serves."""
        try:
            why_not = await self._start_successor(service, child)
        except OSError as error:
            why_not = f"the new process could not start: {error}"
        if why_not:
            why_not = f"{service.name} is not replaced: {why_not}"
            log.warning("%s", why_not)
        return why_not

    async def _start_successor(self, service: Service, child: Child) -> str:
        """Raises OSError."""
        successor = self._start(service, is_successor=True)
        self._others.add(successor)
        why_not = f"the new process has not served in {START_LIMIT_S:g} s; its log has the reason"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_LIMIT_S):
                while not successor.is_serving and not successor.ended.done():
                    await asyncio.wait([successor.ended], timeout=_SERVING_POLL_S)
        if successor.ended.done():
            why_not = _why_ended(successor.ended.result())
        elif self._children.get(service) is not child:
            why_not = "the process has ended, and another one has replaced it"
        elif successor.is_serving:
            why_not = ""
        self._others.discard(successor)
        if why_not:
            successor.kill()
            await successor.ended
        else:
            self._others.add(child)
            self._children[service] = successor
            self._replaced[service].set_result(successor)
        return why_not

    async def _finish(self, child: Child) -> None:
        """Let a process that has a successor finish its requests and end."""
        child.send_signal(heartbeats.END_WHEN_IDLE)
        await asyncio.wait([child.ended], timeout=_IDLE_WITHIN_S)
        child.kill()
        await child.ended
        self._others.discard(child)

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
                child.send_signal(signal.SIGTERM)
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


def _why_ended(status: int) -> str:
    if status == heartbeats.CANNOT_ANSWER:
        return (
            "the database does not answer, and there is no usable copy of its keys, limits and "
            "models"
        )
    return f"the new process ended before it served ({describe(status)})"


# -- Orphans

_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
# The services' own processes are waited for elsewhere, at once.
_REAP_AFTER_S: Final = 1.0
# How often to look for new engines: several times while an engine waits for a node.
_KEEP_INTERVAL_S: Final = 4.0
# In the time that the services leave of the ten seconds that containers get.
_ORPHANS_GRACE_S: Final = 1.0


class Orphans:
    """Engines whose node was killed, until the next node adopts them. On Linux the supervisor
    becomes their parent, learns their end, and ends those that no node has ended. It also keeps
    each engine that serves. Elsewhere engines end with their node.

    Call `begin` once in the event loop, and `end` when no service runs any more."""

    def __init__(
        self, own: Callable[[], Container[int]], run_dir: Path, secret: Callable[[], bytes]
    ) -> None:
        """`own` returns the ids of the services' processes, `secret` that of engines' sockets."""
        self._own = own
        self._kept = KeptEngines(run_dir, secret)
        self._keeping: asyncio.Task[None] | None = None
        self._reaping: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """From now on, orphans become children of this process."""
        if prctl(_PR_SET_CHILD_SUBREAPER, 1):
            asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap_later)
            self._keeping = asyncio.create_task(self._keep(), name="keep engines")

    async def end(self) -> None:
        """Terminate the orphans, and kill those that do not end in time."""
        import psutil  # 3 MB, and 10 ms of each start

        left = psutil.Process().children()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, left = await asyncio.to_thread(psutil.wait_procs, left, _ORPHANS_GRACE_S)
        for process in left:
            kill_group(process.pid)  # for leaders of a group
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await asyncio.to_thread(psutil.wait_procs, left, _ORPHANS_GRACE_S)

    async def _keep(self) -> None:
        while True:
            # Without the secret the engines that are known already are kept.
            with contextlib.suppress(SettingError):
                self._kept.look()
            await asyncio.sleep(until_next(_KEEP_INTERVAL_S))

    def _reap_later(self) -> None:
        if self._reaping is None:
            loop = asyncio.get_running_loop()
            self._reaping = loop.call_later(_REAP_AFTER_S, self._reap)

    def _reap(self) -> None:
        self._reaping = None
        own = self._own()
        with contextlib.suppress(ChildProcessError):  # there is no child
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                if ended.si_pid in own:
                    self._reap_later()  # others may be behind it
                    return
                is_engine = os.getpgid(ended.si_pid) == ended.si_pid
                pid, status = os.waitpid(ended.si_pid, 0)
                if is_engine:
                    end = describe(os.waitstatus_to_exitcode(status))
                    log.info("engine process %d, which had outlived a node, ended (%s)", pid, end)
