"""Child processes of every kind: start, watch, end and reap.

- A child may be killed at any moment. The parent notices at once, by a descriptor of the process.
- A child ends on SIGTERM, or is killed with the rest of its group.
- A child that gives signs of life in a page, see `heartbeat`, may be watched: if it stands still,
  the parent makes it write its stacks, and kills the child.
- A child ends with its parent only by its own doing, see `parent`.

A process of another parent is handled in the same way, but has no known status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from subprocess import DEVNULL, Popen
from typing import Final

from vinery_serving.processes.heartbeat import (
    Hang,
    HangWatch,
    LinuxProcess,
    Page,
    write_stacks_and_end,
)
from vinery_serving.processes.upkeep import until_next

log = logging.getLogger(__name__)

# How long a process that stands still has to write its stacks.
_STACKS_WITHIN_S: Final = 0.5
# How long the kernel takes to end a killed process, unless it waits for a disk.
_KILLED_WITHIN_S: Final = 1.0
# Between two looks where the system reports no end.
_POLL_S: Final = 0.1
_READ_BYTES: Final = 1 << 16

# Where programs and drivers are, and no secrets.
_PLACES: Final = frozenset({"PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH", "HOME"})
# What programs read that connect to other servers, for `environment_with`.
NETWORK_VARIABLES: Final = (
    *("SSL_CERT_", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
)


def environment_with(*more: str) -> dict[str, str]:
    """Return this process's variables that any program needs, and those named in `more`. A name
    that ends with `_` stands for all names that begin with it."""
    beginnings = tuple(each for each in more if each.endswith("_"))
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PLACES or name in more or name.startswith(beginnings)
    }


class RunningProcess(ABC):
    """A process that leads a group. Call `end` or `close` in any case."""

    def __init__(self, pid: int, name: str, page: Page | None = None) -> None:
        """`page` has the signs of life; `close` closes the page, too."""
        self.pid = pid
        self.name = name
        self.page = page
        self.hang: Hang | None = None  # why `watch` ended the process
        self.fields: Mapping[str, object] = {}  # of the log line about the hang
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    @abstractmethod
    def has_ended(self) -> bool: ...

    @abstractmethod
    async def wait(self) -> int | None:
        """Wait for the end. Returns the exit status, negative for a signal; None: not known."""

    @abstractmethod
    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process if it has not ended."""

    def kill(self) -> None:
        """Kill the process and its group. The kernel gives the id of the group to no other process
        before the end of this one."""
        if not self.has_ended:
            kill_group(self.pid)

    async def ends_within(self, timeout_s: float) -> bool:
        """Wait for its end at most so long. Returns whether it has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wait()
        return self.has_ended

    async def end(self, grace_s: float = 0.0) -> None:
        """Terminate the process, kill its group after `grace_s`, and reap the process."""
        if not self.has_ended and grace_s > 0:
            self.send_signal(signal.SIGTERM)
            await self.ends_within(grace_s)
        self.kill()
        await self.wait()
        self.unwatch()
        if self._watching is not None:
            await asyncio.gather(self._watching, return_exceptions=True)
        self.close()

    def close(self) -> None:
        if self.page is not None and not self._is_closed:
            self.page.close()
        self._is_closed = True

    def watch(self) -> None:
        """From now on, end the process when it stands still. Needs a running event loop."""
        if self.page is not None:
            watch = HangWatch(self.page, LinuxProcess(self.pid))
            self._watching = asyncio.create_task(self._watch(watch, self.page))

    def unwatch(self) -> None:
        """Stop watching, unless the process is just being ended: the log then gets the stacks."""
        if self._watching is not None and self.hang is None:
            self._watching.cancel()

    async def _watch(self, watch: HangWatch, page: Page) -> None:
        hang = None
        while hang is None:
            await asyncio.sleep(until_next(watch.pause_s))
            if self.has_ended:
                return
            try:
                hang = watch.look()
            except Exception:
                # Of any kind: if the watch ended, a process that hangs would stay.
                log.exception("a look at %s failed", self.name)
        self.hang = hang
        with contextlib.suppress(ProcessLookupError):
            write_stacks_and_end(self.pid)
        await self.ends_within(_STACKS_WITHIN_S)
        self.kill()
        await self.ends_within(_KILLED_WITHIN_S)
        log.error(
            "%s stood still for %.1f s (%s) and is replaced; its stacks: %s",
            *(self.name, hang.silent_s, hang.reason, page.stacks() or "unknown"),
            extra={"fields": self.fields},
        )


class ChildProcess(RunningProcess):
    """A process that this one has started."""

    def __init__(
        self,
        argv: Sequence[str],
        name: str,
        *,
        environment: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
        stdin: int = DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        page: Page | None = None,
        leads_group: bool = True,
        before_exec: Callable[[], object] | None = None,
        start: Callable[..., Popen[bytes]] = Popen,
    ) -> None:
        """Start the child. Raises OSError, and closes the page then.

        The child inherits `fds` and the page under the same numbers, and `environment` replaces the
        parent's. A child that leads a group has its own session: neither a terminal nor the end of
        this process's group ends such a child, and its own children end with it. The child calls
        `before_exec` first, for which this process should have one thread.
        """
        try:
            self._process = start(
                argv,
                bufsize=0,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                pass_fds=fds if page is None else (*fds, page.fd),
                start_new_session=leads_group,
                preexec_fn=before_exec,
            )
        except OSError:
            if page is not None:
                page.close()
            raise
        super().__init__(self._process.pid, name, page)
        self._leads_group = leads_group
        self._input: asyncio.WriteTransport | None = None
        self._output: asyncio.ReadTransport | None = None

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None: the process runs."""
        return self._process.poll()

    async def wait(self) -> int:
        while (status := self._process.poll()) is None:
            await _wait_until_ended(self.pid)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, or the whole group of a leader: children may outlive the leader, and
        the group keeps its id until the last child has ended."""
        if not self._leads_group:
            self._process.kill()
        elif not self._is_closed:
            kill_group(self.pid)

    async def write(self, data: bytes) -> None:
        """Write to its standard input, a pipe. What a process that has ended does not read is
        lost."""
        if self._input is None:
            loop = asyncio.get_running_loop()
            self._input, _ = await loop.connect_write_pipe(asyncio.Protocol, self._process.stdin)
        self._input.write(data)

    def close_input(self) -> None:
        if self._input is not None:
            self._input.close()
        elif self._process.stdin is not None:
            self._process.stdin.close()

    async def output(self, max_line_bytes: int = _READ_BYTES) -> asyncio.StreamReader:
        """Return a reader of its standard output, a pipe. Call it once."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(max_line_bytes)
        self._output, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
        )
        return reader

    def close(self) -> None:
        super().close()
        self.close_input()
        if self._output is not None:
            self._output.close()
        elif self._process.stdout is not None:
            self._process.stdout.close()


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


async def _wait_until_ended(pid: int) -> None:
    """Wait for the end of a child, or for a moment where the system cannot report it."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):  # another system, or too many open files
        await asyncio.sleep(_POLL_S)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
