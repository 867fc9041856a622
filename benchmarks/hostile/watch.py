"""What hostile requests do to a platform: its neighbour's waits, its web processes' CPU time and
memory, and whether anything goes on when the last of them was answered."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import httpx
import psutil

from benchmarks.hostile.neighbour import Answer

_MB: Final = 1e6
_LOOK_EVERY_S: Final = 1.0
_BLOCKS: Final = re.compile(
    r'vinery_loop_block_seconds_bucket\{le="(?P<bound>[^"]+)",.*\} (?P<total>[0-9.e+]+)$'
)
_FIRST_ANSWERS_S: Final = 30.0


@dataclass
class Web:
    """The web processes of a platform, with the processes that they have started. Which these
    are is looked up once a second: to search for them takes milliseconds."""

    supervisor: psutil.Process
    _known: list[psutil.Process] = field(default_factory=list)
    _looked_s: float = 0.0

    @classmethod
    def of(cls, pid: int) -> Web:
        return cls(psutil.Process(pid))

    def cpu_s(self) -> float:
        """Their CPU time, with that of their children, which have perhaps ended."""
        return sum(map(_cpu_s, self._family()))

    def memory_mb(self) -> float:
        """Their resident memory, with that of their children."""
        return sum(map(_memory_mb, self._family()))

    def memory_of_each_mb(self) -> dict[int, float]:
        """The resident memory of each web process by its id, without its children."""
        parents = filter(_is_web, self.supervisor.children(recursive=True))
        return {parent.pid: _memory_mb(parent) for parent in parents}

    def cpu_of_all_s(self) -> float:
        """The CPU time of all processes of the platform: engines and their checkers, too."""
        every = [self.supervisor, *self.supervisor.children(recursive=True)]
        return sum(map(_own_cpu_s, every))

    def _family(self) -> list[psutil.Process]:
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_EVERY_S:
            self._looked_s = now_s
            parents = filter(_is_web, self.supervisor.children(recursive=True))
            self._known = [each for parent in parents for each in _with_children(parent)]
        return self._known


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):  # it ended while we looked
        return [process, *process.children(recursive=True)]
    return []


def _is_web(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it ended while we looked
        return {"vinery_platform.cli", "web"} <= set(process.cmdline())
    return False


def _cpu_s(process: psutil.Process) -> float:
    """Of a process, and of those of its children that it has waited for."""
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
    """The answers of a neighbour that asks beside what is measured."""

    _answers: list[Answer] = field(default_factory=list)

    def since(self, begun_s: float, what: str | None = None) -> list[Answer]:
        """The answers to requests that were due since then, of one kind or of both."""
        # A copy at once: the reading thread appends to it.
        return [
            each
            for each in self._answers.copy()
            if each.due_s >= begun_s and what in (None, each.what)
        ]

    def all_of(self, what: str) -> list[Answer]:
        return self.since(0.0, what)

    def wait_for(self, count: int, begun_s: float, timeout_s: float = _FIRST_ANSWERS_S) -> None:
        """Until there are so many answers of both kinds. Raises TimeoutError."""
        give_up_s = time.monotonic() + timeout_s
        while len(self.since(begun_s)) < count:
            if time.monotonic() > give_up_s:
                raise TimeoutError("the neighbour gets no answer")
            time.sleep(0.02)

    def add(self, answer: Answer) -> None:
        self._answers.append(answer)


@contextmanager
def neighbour_of(base_url: str, key: str) -> Iterator[Neighbour]:
    """A neighbour that asks until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.hostile.neighbour", base_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    neighbour = Neighbour()
    output = process.stdout

    def read() -> None:
        for line in output:
            neighbour.add(Answer.read(line))

    reader = threading.Thread(target=read, daemon=True)
    try:
        process.stdin.write(key + "\n")
        process.stdin.flush()
        reader.start()
        begun_s = time.monotonic()
        neighbour.wait_for(4, begun_s)
        yield neighbour
    finally:
        process.kill()
        process.wait()
        reader.join()


def blocks_of_loop(base_url: str) -> dict[str, int]:
    """How many blocks of the event loop the web process that answers has counted, by the bound
    of the metric's bucket, in seconds; without empty buckets."""
    found: dict[str, int] = {}
    before = 0
    for line in httpx.get(f"{base_url}/metrics").text.splitlines():
        if match := _BLOCKS.match(line):
            total = int(float(match["total"]))
            found[match["bound"]] = total - before
            before = total
    return {bound: count for bound, count in found.items() if count}


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of `values` does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
