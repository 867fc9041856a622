"""`python -m vinery_serving.engine.checkers FOLDER TEMPORARY FD PARENT` starts and ends checkers of
grammars for the engine PARENT, which is confined and starts no processes.

FD is a socket. A message with a descriptor starts the checker of a number for a vocabulary, and has
no answer. A message without ends the checker, and is answered by the exit status. Before the first
message this process imports nothing, because its engine loads, and then it is confined.
"""

import os
import select
import signal
import struct
import sys
from typing import Any, Final

# The number of a checker, and the size of the vocabulary or the exit status.
MESSAGE: Final = struct.Struct("ii")
_PACKAGES: Final = ("openvino", "openvino_genai", "openvino_tokenizers", "numpy", "msgspec")


def main(folder: str, temporary: str, fd: int, engine_pid: int) -> None:
    import resource
    import socket
    from importlib import import_module, util
    from pathlib import Path

    from vinery_serving.processes import parent
    from vinery_serving.processes.calls import Act, filter_calls
    from vinery_serving.processes.confine import Needs, confine

    parent.end_with(engine_pid)
    specs: Any = filter(None, map(util.find_spec, _PACKAGES))  # wherever they are installed
    reads = (Path(folder), Path("/proc"), *(Path(each.origin).parents[1] for each in specs))
    acts, kept = frozenset((Act.FORK, Act.SIGNAL, Act.OUTLIVE)), frozenset((0, 1, 2, fd))
    limits = {resource.RLIMIT_DATA: 8 * 2**30}  # a checker is replaced long before
    confine(Needs(reads, (Path(temporary),), acts=acts, descriptors=kept, limits=limits))
    engine = socket.socket(fileno=fd)
    own_pid, pids = os.getpid(), dict[int, int]()
    while (received := socket.recv_fds(engine, MESSAGE.size, 1))[0]:
        (number, vocab_size), fds = MESSAGE.unpack(received[0]), received[1]
        if not fds:
            pid = pids.pop(number)
            os.kill(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            engine.send(MESSAGE.pack(number, status))
        elif pid := os.fork():
            pids[number] = pid
            os.close(fds[0])
        else:
            engine.close()
            parent.end_with(own_pid)
            filter_calls(frozenset(), (), os.getpid())
            import_module("vinery_serving.engine.canary").main(Path(folder), vocab_size, fds[0])
            os._exit(0)


if __name__ == "__main__":
    select.select([int(sys.argv[3])], [], [])
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
