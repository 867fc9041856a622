"""One process of a service, from its start to its end, as the supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from vinery_platform.process import heartbeats, logs
from vinery_platform.process.memory import resident_bytes
from vinery_serving.processes import parent
from vinery_serving.processes.hang import CALM_INTERVAL_S, CONFIRM_S, Hang, HangWatch, LinuxProcess
from vinery_serving.processes.heartbeat import Page, write_stacks_and_end

log = logging.getLogger(__name__)

# How long a service may take from its start to its first sign of life.
START_LIMIT_S = 120.0
# How long a service that stands still has to write its stacks.
_STACKS_WITHIN_S = 0.5
# Without a watch over hung services, no sign of life comes too late.
_NO_LIMIT_S = 1e9


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


class Child:
    """A running process. `ended` is done when it and its own children are."""

    def __init__(
        self,
        service: Service,
        process: asyncio.subprocess.Process,
        page: Page | None,
        *,
        is_watched: bool,
    ) -> None:
        self._service = service
        self._process = process
        self._page = page
        self._watch = (
            HangWatch(page, LinuxProcess(process.pid)) if page is not None and is_watched else None
        )
        self._hang: Hang | None = None
        self.ended: asyncio.Task[int] = asyncio.create_task(self._wait())

    @classmethod
    async def start(
        cls, service: Service, environment: Mapping[str, str], hung_after_s: float
    ) -> Child:
        """Start a process of the service. Raises OSError."""
        own = {logs.PROCESS_VARIABLE: service.name, parent.PARENT_VARIABLE: str(os.getpid())}
        page, fds, is_watched = None, service.fds, hung_after_s > 0
        if service.beats:
            page = Page(START_LIMIT_S if is_watched else _NO_LIMIT_S)
            # The rest of the time confirms that it stands still.
            limit_s = max(hung_after_s - CONFIRM_S, 1.0) if is_watched else _NO_LIMIT_S
            own[heartbeats.VARIABLE] = f"{page.fd}:{limit_s:g}"
            fds = (*fds, page.fd)
        try:
            process = await asyncio.create_subprocess_exec(
                *service.argv,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,
                env={**environment, **dict(service.environment), **own},
            )
        except OSError:
            if page is not None:
                page.close()
            raise
        return cls(service, process, page, is_watched=is_watched)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_serving(self) -> bool:
        """Whether it takes requests: its service beats, and it has reported so."""
        return not self.ended.done() and self._page is not None and self._page.is_serving

    @property
    def resident_bytes(self) -> int:
        """Its memory, without that of its own children; 0 if it has ended."""
        return 0 if self.ended.done() else resident_bytes(self._process.pid)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def end_when_idle(self) -> None:
        """Let it take no connection, finish its requests, and end."""
        self._send(heartbeats.END_WHEN_IDLE)

    def kill(self) -> None:
        """Kill the process and its own children. Each service leads its own group.

        The kernel does not reuse the id while a process of the group is left.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def next_look_s(self) -> float:
        """After which time to call `end_if_hung` again, at the latest."""
        return CALM_INTERVAL_S if self._watch is None else self._watch.next_look_s

    async def end_if_hung(self) -> None:
        """End the process if it stands still, after it has written where it stands if it can."""
        if self._watch is None or self.ended.done() or self._hang is not None:
            return
        self._hang = self._watch.look()
        if self._hang is None:
            return
        with contextlib.suppress(ProcessLookupError):
            write_stacks_and_end(self._process.pid)
        await asyncio.wait([self.ended], timeout=_STACKS_WITHIN_S)
        self.kill()

    async def _wait(self) -> int:
        status = await self._process.wait()
        self.kill()  # the children of a service end with it, also if it was killed
        if self._page is not None:
            if self._hang is not None:
                log.error(
                    "%s stood still for %.1f s (%s) and is replaced; its stacks: %s",
                    *(self._service.name, self._hang.silent_s, self._hang.reason),
                    self._page.stacks() or "unknown",
                )
            self._page.close()
        return status

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
