"""What a platform costs that does nothing: CPU time, memory, its start, and its commands.

CPU time and wake-ups are of all its processes for a minute, some seconds after its start, with the
kernel's clock of each thread. Memory is the proportional set size: parts that processes share
count once. The engine stands apart, because most of its memory is the model.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from benchmarks.platform_under_test import OwnPlatform, own_platform, wait_until_it_answers
from benchmarks.progress import show
from benchmarks.settings import TINY_CHAT

_SETTLE_S: Final = 10.0
_COMMANDS: Final = (
    ("--help",),
    ("key", "list"),
    ("model", "list"),
    ("usage", "show"),
    ("user", "list"),
)
_ENGINE: Final = "engine"
_ROLES: Final = ("web", "node", "jobs")


@dataclass(frozen=True)
class ProcessCost:
    """One process. Several of a role are added up."""

    role: str
    cpu: float  # part of a core, 0..1
    wakeups_per_s: float
    memory_mb: float


@dataclass(frozen=True)
class CommandCost:
    """A command of `vinery`: the median of its runs."""

    command: str
    took_s: float


@dataclass(frozen=True)
class IdleResult:
    """All that was measured."""

    ready_s: float  # from the start of `vinery up`, with a prepared home, to the first answer
    processes: tuple[ProcessCost, ...]
    commands: tuple[CommandCost, ...]

    @property
    def cpu(self) -> float:
        """Of all processes, part of a core."""
        return sum(each.cpu for each in self.processes)

    @property
    def memory_mb(self) -> float:
        """Of all processes but the engine."""
        return sum(each.memory_mb for each in self.processes if each.role != _ENGINE)


def measure_idle(*, watch_s: float, num_commands: int) -> IdleResult:
    """Start a platform twice, the second time with a prepared home. Raises PlatformFailed."""
    with tempfile.TemporaryDirectory(prefix="vinery-bench-") as folder:
        with own_platform(Path(folder)) as platform:
            wait_until_it_answers(platform.endpoint, TINY_CHAT)
            time.sleep(_SETTLE_S)
            show(f"  idle for {watch_s:g} s")
            before = _used(platform)
            time.sleep(watch_s)
            processes = tuple(_costs(before, _used(platform), watch_s))
            commands = tuple(_command(platform, words, num_commands) for words in _COMMANDS)
        began_s = time.perf_counter()
        with own_platform(Path(folder)) as platform:
            wait_until_it_answers(platform.endpoint, TINY_CHAT)
            ready_s = time.perf_counter() - began_s
    return IdleResult(ready_s, processes, commands)


@dataclass(frozen=True)
class _Used:
    """What a process has used since its start."""

    role: str
    cpu_s: float
    num_wakeups: int
    memory_mb: float


def _used(platform: OwnPlatform) -> dict[int, _Used]:
    supervisor = psutil.Process(platform.pid)
    found = {}
    for process in [supervisor, *supervisor.children(recursive=True)]:
        with suppress(psutil.Error, OSError):  # it ended meanwhile
            found[process.pid] = _used_by(process)
    return found


def _used_by(process: psutil.Process) -> _Used:
    cpu_s, num_wakeups = 0.0, 0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        cpu_s += int((thread / "schedstat").read_text().split()[0]) / 1e9
        status = dict(_fields(thread / "status"))
        num_wakeups += int(status["voluntary_ctxt_switches"])
    return _Used(_role(process), cpu_s, num_wakeups, process.memory_full_info().pss / 1e6)


def _fields(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text().splitlines():
        name, _, value = line.partition(":")
        yield name, value.strip()


def _role(process: psutil.Process) -> str:
    words = process.cmdline()
    if "vinery_serving.engine" in words:
        return _ENGINE
    role = next((word for word in words if word in _ROLES), None)
    if role is not None:
        return role
    return "supervisor" if "up" in words else "other"


def _costs(
    before: dict[int, _Used], after: dict[int, _Used], watch_s: float
) -> Iterator[ProcessCost]:
    pids = before.keys() & after.keys()
    for role in sorted({after[pid].role for pid in pids}):
        pairs = [(before[pid], after[pid]) for pid in pids if after[pid].role == role]
        yield ProcessCost(
            role,
            cpu=sum(now.cpu_s - then.cpu_s for then, now in pairs) / watch_s,
            wakeups_per_s=sum(now.num_wakeups - then.num_wakeups for then, now in pairs) / watch_s,
            memory_mb=sum(now.memory_mb for _, now in pairs),
        )


def _command(platform: OwnPlatform, words: Sequence[str], num_runs: int) -> CommandCost:
    times_s = []
    for _ in range(num_runs):
        began_s = time.perf_counter()
        platform.run(*words)
        times_s.append(time.perf_counter() - began_s)
    return CommandCost(" ".join(words), median(times_s))
