"""Runs a program of another environment in a process group, with a memory limit and live output.

The program ends with this process, also when this process is killed.
"""

import asyncio
import os
import re
import resource
import signal
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Final

from vinery_serving.models.convert.checkpoint import ConvertError
from vinery_serving.processes import parent
from vinery_serving.processes.calls import Act
from vinery_serving.processes.child import ChildProcess, environment_with
from vinery_serving.processes.confine import Needs, confine

_SYSTEM: Final = tuple(map(Path, ("/usr/bin", "/usr/sbin", "/bin", "/sbin")))
_GRACE_S: Final = 5.0
_OUT_OF_MEMORY: Final = re.compile(
    r"MemoryError|std::bad_alloc|[Cc]an't allocate memory|Cannot allocate memory|"
    r"not enough memory|[Oo]ut of memory"
)


class ChildFailed(ConvertError):
    """The program ended with an error. `output` is the end of its output."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1] if lines else "it wrote nothing"


def program_needs(
    programs: Iterable[Path], reads: Iterable[Path] = (), writes: Iterable[Path] = ()
) -> Needs:
    """What a program without a network needs that runs code of others."""
    return Needs(
        reads=(Path("/proc"), Path("/sys"), *_public_files(), *reads),
        writes=tuple(writes),
        runs=(*programs, *_SYSTEM),
        acts=frozenset((Act.FORK, Act.EXECUTE, Act.COPY)),
        descriptors=None,
    )


@cache  # before the job is confined
def _public_files() -> tuple[Path, ...]:
    """The files of /etc that all users may read: libraries ask there about the machine."""
    files = (each for each in Path("/etc").iterdir() if each.is_file())
    public = (each for each in files if each.stat().st_mode & stat.S_IROTH)
    return (Path("/etc/ssl/openssl.cnf"), *public)


async def run(
    command: Sequence[str],
    write: Callable[[bytes], object],
    needs: Needs,
    *,
    memory_bytes: int = 0,
    timeout_s: float | None = None,
    variables: Mapping[str, str] | None = None,
    passed_on: Sequence[str] = (),
) -> None:
    """Run a program, and pass the output to `write`. Each of its processes has at most
    `memory_bytes`; 0: as much as there is. The program is confined to its `needs` and gets
    `variables`, and of this process's variables those that `environment_with` has for `passed_on`:
    packages and checkpoints may run code of others.

    Raises `ConvertError`, and TimeoutError. On cancellation the program gets
    SIGTERM, and the group SIGKILL after 5 s at most.
    """
    environment = environment_with("LC_", "TMPDIR", *passed_on)
    environment.pop("PYTHONPATH", None)
    parent_pid = os.getpid()

    def before_exec() -> None:
        parent.end_with(parent_pid)
        # Of data, not of addresses: weights are mapped from files, which costs no memory.
        of_memory = {resource.RLIMIT_DATA: memory_bytes} if memory_bytes else {}
        confine(replace(needs, limits=of_memory))

    child = ChildProcess(
        command,
        Path(command[0]).name,
        stdout=PIPE,
        stderr=STDOUT,
        environment=environment | dict(variables or {}),
        before_exec=before_exec,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output = await _copy(await child.output(), write)
            status = await child.wait()
    finally:
        await asyncio.shield(child.end(_GRACE_S))
    if status:
        _raise(child.name, status, output, memory_bytes)


async def _copy(reader: asyncio.StreamReader, write: Callable[[bytes], object]) -> str:
    tail = b""
    while chunk := await reader.read(1 << 16):
        write(chunk)
        tail = (tail + chunk)[-(1 << 14) :]
    return tail.decode(errors="replace")


def _raise(name: str, status: int, output: str, memory_bytes: int) -> None:
    if memory_bytes and _OUT_OF_MEMORY.search(output):
        raise ConvertError(
            f"It needed more memory than its limit of {memory_bytes >> 20} MB. Raise the "
            "limit, or convert on a machine with more memory."
        )
    if status == -signal.SIGKILL:
        raise ChildFailed(
            "It was killed, as a system does that runs out of memory. Unload models, or set a "
            "memory limit to see how much it needs.",
            output,
        )
    how = f"signal {-status}" if status < 0 else f"status {status}"
    raise ChildFailed(f"{name} ended with {how}.", output)
