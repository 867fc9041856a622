"""Runs a function in a confined process of its own, because its files come from strangers.

    python -P -m vinery_serving.processes.apart < CALL > ANSWER

The process ends at its limits of processor time, memory and size of the answer, and with its
parent, which kills a late process. The call is a pickle of the parent, and the answer is bytes.
"""

import os
import pickle
import re
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryFile
from typing import IO, Final

from vinery_serving.processes import parent
from vinery_serving.processes.child import ChildProcess, environment_with
from vinery_serving.processes.confine import Needs, confine

_COMMAND: Final = (sys.executable, "-P", "-m", "vinery_serving.processes.apart")
_MAX_ANSWER_BYTES: Final = 1 << 20
_KILLED_WITHIN_S: Final = 1.0
_HAS_RAISED: Final = 3  # exit status; the answer is the kind of the exception


@dataclass(frozen=True, slots=True)
class Limits:
    cpu_s: int = 10
    wall_s: float = 20.0
    memory_bytes: int = 4 * 2**30


class NoAnswer(Exception):
    """The process has ended at a limit, or failed. The message is the end of a sentence."""


async def run_apart(
    work: Callable[..., bytes],
    *arguments: object,
    reads: Sequence[Path] = (),
    limits: Limits = Limits(),
) -> bytes:
    """Return what `work` returns, a function of a module. `reads`: its files and folders, which may
    be missing. Raises `NoAnswer`, and OSError if no process can be started."""
    with _memory_file() as call, _memory_file() as answer:
        call.write(pickle.dumps((limits, reads, work, arguments)))
        call.seek(0)
        process = ChildProcess(
            _COMMAND,
            "reader of files",
            environment=environment_with(),
            stdin=call.fileno(),
            stdout=answer.fileno(),
            stderr=DEVNULL,
            leads_group=False,
        )
        try:
            await process.ends_within(limits.wall_s)
        finally:
            process.kill()
            await process.ends_within(_KILLED_WITHIN_S)
            process.close()
        answer.seek(0)
        text = answer.read(_MAX_ANSWER_BYTES)
    if process.status == _HAS_RAISED:
        raise NoAnswer(f"has led to a {re.sub(rb'[^A-Za-z]', b'', text)[:50].decode()}")
    if process.status != 0:
        gigabytes = limits.memory_bytes >> 30
        raise NoAnswer(f"takes more than {limits.cpu_s} s or {gigabytes} GB")
    return text


def _memory_file() -> IO[bytes]:
    """What clients have sent reaches no disk."""
    if not hasattr(os, "memfd_create"):
        return TemporaryFile()
    return os.fdopen(os.memfd_create("call"), "w+b")


def _main() -> None:
    parent.signal_at_its_end(signal.SIGKILL)
    limits, reads, work, arguments = pickle.load(sys.stdin.buffer)
    answer, status = os.dup(1), 0
    os.dup2(2, 1)  # libraries may print to standard output
    hard_limits = {
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_FSIZE: _MAX_ANSWER_BYTES,
    }
    confine(Needs(reads=reads, descriptors=frozenset((1, 2, answer)), limits=hard_limits))
    try:
        text = work(*arguments)
    except Exception as error:
        text, status = type(error).__name__.encode(), _HAS_RAISED
    with os.fdopen(answer, "wb") as file:
        file.write(text)
    os._exit(status)


if __name__ == "__main__":
    _main()
