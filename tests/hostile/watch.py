"""Measures a platform under hostile requests: a neighbour's answers, CPU time and memory of web
processes, and whether any work goes on after the last answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import httpx
import psutil

from tests.conftest import until
from tests.hostile.case import BODIES, CHAT
from tests.hostile.send import Target

_MB: Final = 1e6
_ASK_EVERY_S: Final = 0.1
_TIMEOUT_S: Final = 120.0
_FIRST_ANSWERS_S: Final = 30.0


@dataclass(frozen=True)
class Web:
    """The web processes of a platform, with all child processes."""

    supervisor: psutil.Process

    @classmethod
    def of(cls, pid: int) -> Web:
        return cls(psutil.Process(pid))

    def cpu_s(self) -> float:
        """CPU time of the web processes and of all children, also of ended children."""
        return sum(_cpu_s(each) for web in self._processes() for each in _with_children(web))

    def memory_of_each_mb(self) -> dict[int, float]:
        """The resident memory of each web process without children, by process id."""
        return {web.pid: _memory_mb(web) for web in self._processes()}

    def cpu_of_all_s(self) -> float:
        """The CPU time of all processes of the platform: engines and their checkers, too."""
        every = [self.supervisor, *self.supervisor.children(recursive=True)]
        return sum(map(_own_cpu_s, every))

    def _processes(self) -> list[psutil.Process]:
        return list(filter(_is_web, self.supervisor.children(recursive=True)))


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):  # the process ended meanwhile
        return [process, *process.children(recursive=True)]
    return []


def _is_web(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # the process ended meanwhile
        return {"vinery_platform.cli", "web"} <= set(process.cmdline())
    return False


def _cpu_s(process: psutil.Process) -> float:
    """Of a process, and of ended children that the process has waited for."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system + times.children_user + times.children_system
    return 0.0


def _own_cpu_s(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0


def _memory_mb(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return process.memory_info().rss / _MB
    return 0.0


@dataclass
class Neighbour:
    """Asks `/livez` and a chat for one token ten times a second, and keeps when each request was
    due, and its status: 0 where there was no answer."""

    target: Target
    _answers: list[tuple[float, int]] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def since(self, begun_s: float) -> list[int]:
        """The statuses of requests that were due since then."""
        # A copy at once: the asking threads append to the list.
        return [status for due_s, status in self._answers.copy() if due_s >= begun_s]

    def wait_for(self, count: int, begun_s: float) -> None:
        until(lambda: len(self.since(begun_s)) >= count, timeout_s=_FIRST_ANSWERS_S)

    def ask_until_over(self, method: str, path: str, body: Mapping[str, object] | None) -> None:
        headers = {"authorization": f"Bearer {self.target.api_key}"}
        due_s = time.monotonic()
        with httpx.Client(
            base_url=self.target.base_url, headers=headers, timeout=_TIMEOUT_S
        ) as client:
            while not self._is_over.wait(max(0.0, due_s - time.monotonic())):
                try:
                    status = client.request(method, path, json=body).status_code
                except httpx.HTTPError:
                    status = 0
                self._answers.append((due_s, status))
                due_s += _ASK_EVERY_S

    def end(self) -> None:
        self._is_over.set()


@contextmanager
def neighbour_of(target: Target) -> Iterator[Neighbour]:
    """A neighbour that asks until the block ends."""
    neighbour = Neighbour(target)
    requests = (("GET", "/livez", None), ("POST", CHAT, BODIES[CHAT]))
    threads = [
        threading.Thread(target=neighbour.ask_until_over, args=request, daemon=True)
        for request in requests
    ]
    for thread in threads:
        thread.start()
    try:
        neighbour.wait_for(4, 0.0)
        yield neighbour
    finally:
        neighbour.end()
        for thread in threads:
            thread.join()
