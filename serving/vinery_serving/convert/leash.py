"""`python leash.py PARENT_PID MEMORY_BYTES COMMAND...`: becomes a command that ends with its parent
and may not allocate more than so much memory.

Run by path with the standard library only: the command belongs to another environment.
"""

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(parent_pid: int, memory_bytes: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)  # it died before the kernel knew
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        # Of data, not of addresses: weights are mapped from files, which costs no memory.
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
