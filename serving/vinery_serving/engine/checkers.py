"""`python -m vinery_serving.engine.checkers FOLDER TEMPORARY FD PARENT` starts and ends checkers of
grammars for the engine PARENT, which is confined and starts no processes.

This process is confined, too, and has few imports. FD is a socket, and a message is a number. With
a descriptor it is the size of a vocabulary: a new checker gets the descriptor, and the answer is
its id. Without one it is the id of a checker, which is killed: the answer is its exit status.
"""

import os
import resource
import signal
import socket
import struct
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from vinery_serving.processes import parent
from vinery_serving.processes.calls import Act, filter_calls
from vinery_serving.processes.confine import Needs, confine

NUMBER: Final = struct.Struct("i")
# What a checker imports, wherever that is installed.
_PACKAGES: Final = ("openvino", "openvino_genai", "openvino_tokenizers", "numpy", "msgspec")
# A checker is replaced long before, unless a grammar has taken it over.
_LIMITS: Final = {resource.RLIMIT_DATA: 8 * 2**30}


def main(folder: Path, temporary: Path, engine: socket.socket) -> None:
    specs: Any = filter(None, map(find_spec, _PACKAGES))
    reads = (folder, Path("/proc"), *(Path(each.origin).parents[1] for each in specs))
    acts = frozenset((Act.FORK, Act.SIGNAL, Act.OUTLIVE))
    kept = frozenset((0, 1, 2, engine.fileno()))
    confine(Needs(reads=reads, writes=(temporary,), acts=acts, descriptors=kept, limits=_LIMITS))
    own_pid, checkers = os.getpid(), set[int]()
    while (received := socket.recv_fds(engine, NUMBER.size, 1))[0]:
        (number,), fds = NUMBER.unpack(received[0]), received[1]
        if not fds:
            checkers.remove(number)  # KeyError: the engine may end no other process
            os.kill(number, signal.SIGKILL)
            answer = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        elif answer := os.fork():
            checkers.add(answer)
            os.close(fds[0])
        else:
            engine.close()
            parent.end_with(own_pid)
            filter_calls(frozenset(), (), os.getpid())
            import_module("vinery_serving.engine.canary").main(folder, number, fds[0])
            os._exit(0)
        engine.send(NUMBER.pack(answer))


if __name__ == "__main__":
    parent.end_with(int(sys.argv[4]))
    main(Path(sys.argv[1]), Path(sys.argv[2]), socket.socket(fileno=int(sys.argv[3])))
