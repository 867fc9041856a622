"""CPU time of the web processes: those that hold the socket the clients connect to.

Found by the port and not by a name, so this works for any server on this machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil

# CPUCLOCK_SCHED of the kernel: the time that was really spent running.
_SCHEDULED = 2


class WebCpu:
    """The CPU time of the processes that listen on a port; None without listeners."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._processes = list(listeners(parts.port or 80)) if _is_here(parts.hostname) else []

    def used_s(self) -> float | None:
        """User and system time since they started, or None when there are no listeners."""
        if not self._processes:
            return None
        return sum(map(_used_s, self._processes))


def _used_s(process: psutil.Process) -> float:
    """To the nanosecond where Linux keeps a clock for each process; elsewhere, and in
    `/proc`, the unit is a hundredth of a second, too coarse for a short run."""
    if sys.platform == "linux":
        return time.clock_gettime((~process.pid << 3) | _SCHEDULED)
    times = process.cpu_times()
    return times.user + times.system


def listeners(port: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            sockets = process.net_connections("tcp")
        except psutil.Error:  # it ended, or belongs to another user
            continue
        if any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets):
            yield process


def _is_here(host: str | None) -> bool:
    return host in {"localhost", "127.0.0.1", "::1"}
