"""The fork server of a web process: `python -m` this module.

It has imported what jobs need, so that a worker process starts within milliseconds. Nothing comes
from the web process: no environment, no secrets, no connections. It opens no sockets and runs no
programs, and a worker may do less, see `confine_worker`. It reads commands from a socket and gives
signs of life. When the socket closes, the workers and the fork server end.
"""

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pickle
import select
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from vinery_serving.gateway.workers.worker import Options, confine_worker, serve
from vinery_serving.processes.calls import Act
from vinery_serving.processes.confine import Needs, confine
from vinery_serving.processes.heartbeat import END_SIGNAL, Page

# A command is one of these, the number of a worker, and what is wanted.
FORK: Final = "fork"  # with the limits of a call and what a call may read; the socket comes next
KILL: Final = "kill"
LOAD: Final = "load"  # a file with an argument for `load` of the jobs comes next
# The end of a worker: the number and the exit status, negative for a signal.
ENDED: Final = struct.Struct("!Ii")
_READ_BYTES: Final = 65536
_INTERVAL_S: Final = 1.0  # between two signs of life


class ForkServer:
    def __init__(self, jobs: ModuleType, options: Options) -> None:
        self._control = Connection(options.control_fd)
        self._jobs, self._options = jobs, options
        self._heartbeat = Page(options.page_fd)
        self._numbers: dict[int, int] = {}  # of workers, by process id
        self._wakeup, self._wakeup_write = socket.socketpair()

    def run(self) -> None:
        """Serve until the socket closes."""
        self._wakeup.setblocking(False)
        self._wakeup_write.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The web process ends its requests first, and then closes the socket.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._heartbeat.allow_stacks()
        gc.collect()
        gc.freeze()
        poll = select.poll()  # the web process may have more connections than `select` can count
        for each in (self._control, self._wakeup):
            poll.register(each, select.POLLIN)
        with contextlib.suppress(EOFError, ConnectionError):  # the web process has ended
            while True:
                self._heartbeat.beat(self._options.limit_s)
                readable = {fd for fd, _ in poll.poll(_INTERVAL_S * 1000)}
                if self._wakeup.fileno() in readable:
                    with contextlib.suppress(BlockingIOError):
                        self._wakeup.recv(_READ_BYTES)
                    self._reap()
                if self._control.fileno() in readable:
                    self._run(*self._control.recv())
        signal.set_wakeup_fd(-1)
        for pid in self._numbers:
            os.kill(pid, signal.SIGKILL)

    def _run(self, command: str, number: int, wanted: Any) -> None:
        if command == FORK:
            self._fork(number, *wanted)
        elif command == KILL:
            for pid, each in self._numbers.items():
                if each == number:
                    os.kill(pid, signal.SIGKILL)
        elif command == LOAD:
            self._heartbeat.beat(self._options.load_s)
            with os.fdopen(recv_handle(self._control), "rb") as file:
                self._jobs.load(pickle.load(file))
            gc.collect()
            gc.freeze()

    def _fork(self, number: int, cpu_s: int, memory_bytes: int, reads: Sequence[Path]) -> None:
        fd = recv_handle(self._control)
        parent_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(fd)
            self._control.send_bytes(ENDED.pack(number, 1))
            return
        if pid:
            os.close(fd)
            self._numbers[pid] = number
            return
        try:
            limits = self._options._replace(cpu_s=cpu_s, memory_bytes=memory_bytes)
            self._become_worker(fd, parent_pid, limits, reads)
            os._exit(0)
        finally:
            os._exit(1)

    def _become_worker(
        self, fd: int, parent_pid: int, limits: Options, reads: Sequence[Path]
    ) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        faulthandler.unregister(END_SIGNAL)
        self._heartbeat.close()
        confine_worker(parent_pid, fd, reads)
        serve(socket.socket(fileno=fd), self._jobs, limits)

    def _reap(self) -> None:
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number = self._numbers.pop(pid, None)
            if number is not None:
                self._control.send_bytes(ENDED.pack(number, os.waitstatus_to_exitcode(status)))


def arguments(options: Options) -> list[str]:
    """Return the command for a fork server that inherits the descriptors."""
    module = "vinery_serving.gateway.workers.fork_server"
    return [sys.executable, "-P", "-m", module, json.dumps(options)]


def main() -> None:
    options = Options(*json.loads(sys.argv[1]))
    server = ForkServer(importlib.import_module(options.jobs), options)
    # The folders of later models are not known: workers alone have rules for files.
    acts = frozenset((Act.FORK, Act.SIGNAL, Act.OUTLIVE, Act.OWN))
    confine(Needs(reads=None, descriptors=None, acts=acts))
    server.run()


if __name__ == "__main__":
    main()
