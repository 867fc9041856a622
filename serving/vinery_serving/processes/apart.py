"""Runs a function in a confined process of its own, because its files come from strangers.

    python -P -m vinery_serving.processes.apart < CALL > ANSWER

The process ends at its limits, and with its parent, which kills a late process. The call is a
pickle of the parent, and the answer is bytes.
"""

import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryFile
from typing import Final

from vinery_serving.processes import parent
from vinery_serving.processes.child import ChildProcess, environment_with
from vinery_serving.processes.confine import Needs, confine

_LIMITS: Final = {
    resource.RLIMIT_CPU: 10,
    resource.RLIMIT_AS: 4 * 2**30,
    resource.RLIMIT_FSIZE: 2**24,  # of the answer
}
_KILLED_WITHIN_S: Final = 1.0


class NoAnswer(Exception):
    """The process has exceeded a limit, or failed. The message is the end of a sentence."""


async def run_apart(
    work: Callable[..., bytes],
    *arguments: object,
    reads: Sequence[Path] = (),
    within_s: float = 15.0,
    cpu_s: int = 0,
    nice: int = 0,
) -> bytes:
    """Return what `work` returns, a function of a module. `reads`: its files and folders, which may
    be missing. `cpu_s`: 0 for the limit of a short reading. `nice`: its priority, 19 is the lowest.
    Raises `NoAnswer`, and OSError if no process can be started."""
    limits = _LIMITS | ({resource.RLIMIT_CPU: cpu_s} if cpu_s else {})
    with TemporaryFile() as call, TemporaryFile() as answer:
        call.write(pickle.dumps((Needs(reads=reads, limits=limits), work, arguments)))
        call.seek(0)
        process = ChildProcess(
            (sys.executable, "-P", "-m", __name__),
            "reader of files",
            environment=environment_with(),
            stdin=call.fileno(),
            stdout=answer.fileno(),
            stderr=DEVNULL,
            leads_group=False,
        )
        try:
            if nice:
                os.setpriority(os.PRIO_PROCESS, process.pid, nice)
            await process.ends_within(within_s)
        finally:
            process.kill()
            await process.ends_within(_KILLED_WITHIN_S)
            process.close()
        if process.status != 0:
            cpu_s, num_bytes, _ = limits.values()
            raise NoAnswer(f"fails, or takes more than {cpu_s} s or {num_bytes >> 30} GB")
        answer.seek(0)
        return answer.read()


def _main() -> None:
    parent.signal_at_its_end(signal.SIGKILL)
    needs, work, arguments = pickle.load(sys.stdin.buffer)
    confine(needs)
    with os.fdopen(1, "wb") as answer:
        answer.write(work(*arguments))
    os._exit(0)


if __name__ == "__main__":
    _main()
