"""The machine: its users and parts; and progress on standard error."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil

REPOSITORY: Final = Path(__file__).resolve().parents[1]
_PACKAGES: Final = (
    "vinery-platform",
    "openvino",
    "openvino-genai",
    "uvicorn",
    "uvloop",
    "httptools",
)
# CPUCLOCK_SCHED of the kernel: the time that was really spent running.
_SCHEDULED: Final = 2
# Part of all cores that other programs use, above which ratios waver.
MAX_BUSY: Final = 0.10
_LOOK_S: Final = 2.0
_MAX_WAIT_S: Final = 120.0


def show(line: str) -> None:
    """Show one line of progress at once, on standard error."""
    print(line, file=sys.stderr, flush=True)


def markdown(*rows: Sequence[object]) -> Iterator[str]:
    """The lines of a table, its heads first."""
    for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]):
        yield f"| {' | '.join(map(str, row))} |"


# -- The CPU time of the web processes


class WebCpu:
    """The CPU time of the processes that listen on ports; None without listeners.

    The processes are found by port and not by name, so this works for any server on this machine.
    """

    def __init__(self, *base_urls: str) -> None:
        here = ("localhost", "127.0.0.1", "::1")
        parts = [each for each in map(urlsplit, base_urls) if each.hostname in here]
        self._processes = [each for part in parts for each in listeners(part.port or 80)]

    def used_s(self) -> float | None:
        """User and system time since the listeners started, or None without listeners."""
        return sum(process_s(each.pid) for each in self._processes) if self._processes else None


def process_s(pid: int) -> float:
    """The time for which a process has run, in user and system code, to the nanosecond: `/proc`
    counts hundredths of a second, too coarse for a short run."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


def listeners(port: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            sockets = process.net_connections("tcp")
        except psutil.Error:  # it ended, or belongs to another user
            continue
        if any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets):
            yield process


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


# -- Whether other programs use the machine


@dataclass(frozen=True)
class Calm:
    """How busy the machine was before a part, 0..1 of all cores, after waiting."""

    part: str
    waited_s: float
    busy: float

    @property
    def is_calm(self) -> bool:
        return self.busy <= MAX_BUSY


def wait_until_calm(
    part: str,
    *,
    max_wait_s: float = _MAX_WAIT_S,
    busy_for: Callable[[float], float] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Calm:
    """Wait until other programs use at most `MAX_BUSY` of the machine, or the time is over.

    Ratios are of runs side by side, but a machine that is busy for one round and not for the next
    makes them waver by tenths. A machine that does not calm down is measured all the same.
    `busy_for` measures for some seconds how busy the machine is, 0..1.
    """
    measure = busy_for or (lambda seconds: psutil.cpu_percent(seconds) / 100)
    began_s = clock()
    busy = measure(_LOOK_S)
    if busy > MAX_BUSY:
        show(f"{part}: other programs use {busy:.0%} of the machine, waiting")
    while busy > MAX_BUSY and clock() - began_s < max_wait_s:
        busy = measure(_LOOK_S)
    calm = Calm(part, clock() - began_s, busy)
    if not calm.is_calm:
        show(f"{part}: the machine is still busy, so its figures waver")
    return calm


def facts() -> dict[str, Any]:
    """Return the conditions on which figures depend beside the code."""
    return {
        "cpu": _cpu_model(),
        "num_cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_average": list(os.getloadavg()),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
        "commit": _commit(),
    }


def _commit() -> str:
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
