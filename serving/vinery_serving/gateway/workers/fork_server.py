"""The fork server of a web process: `python -m` this module.

It has imported what jobs need, so that a new worker process starts within milliseconds. It has
nothing of the web process: no environment, no secrets, no connections. It reads commands from its
socket, ends when the socket closes, and kills its workers then. It gives signs of life.
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
from typing import Final, NamedTuple, cast

from vinery_serving.gateway.workers.wire import ENDED, Codec
from vinery_serving.gateway.workers.worker import JobsModule, ProcessLimits, confine, serve
from vinery_serving.processes.heartbeat import END_SIGNAL, Heartbeat

# A command: its letter, a number, and the length of its contents.
COMMAND: Final = struct.Struct("!cII")
FORK: Final = b"f"  # a worker with this number; its socket comes along
KILL: Final = b"k"  # the worker with this number
LOAD: Final = b"l"  # the contents: a pickled argument for `load` of the jobs

_MAX_FDS: Final = 16
_READ_BYTES: Final = 65536
# Between two signs of life.
_INTERVAL_S: Final = 1.0


class Options(NamedTuple):
    """What a fork server is started with. It gives its next sign of life, in its page, within
    `limit_s`, and within `load_s` while it loads something."""

    control_fd: int
    jobs: str  # the name of a module
    cpu_s: int  # of one call, as the memory
    memory_bytes: int
    page_fd: int
    limit_s: float
    load_s: float


class ForkServer:
    def __init__(self, control: socket.socket, jobs: JobsModule, options: Options) -> None:
        self._control = control
        self._jobs = jobs
        self._codec = Codec(jobs.RESULT_TYPES)
        self._options = options
        self._heartbeat = Heartbeat(options.page_fd)
        self._received = bytearray()
        self._sockets: list[int] = []  # for the workers that are not forked yet
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
        # The web process may have more connections than `select` can count.
        poll = select.poll()
        for each in (self._control, self._wakeup):
            poll.register(each, select.POLLIN)
        while True:
            self._heartbeat.beat(self._options.limit_s)
            readable = {fd for fd, _ in poll.poll(_INTERVAL_S * 1000)}
            if self._wakeup.fileno() in readable:
                with contextlib.suppress(BlockingIOError):
                    self._wakeup.recv(_READ_BYTES)
                self._reap()
            if self._control.fileno() in readable and not self._read():
                break
        signal.set_wakeup_fd(-1)
        for pid in self._numbers:
            os.kill(pid, signal.SIGKILL)

    def _read(self) -> bool:
        """Run the commands that have arrived. Returns False at the end."""
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _READ_BYTES, _MAX_FDS)
        except ConnectionError:
            return False
        self._received += data
        self._sockets += fds
        while len(self._received) >= COMMAND.size:
            letter, number, num_bytes = COMMAND.unpack_from(self._received)
            end = COMMAND.size + num_bytes
            if len(self._received) < end:
                break
            contents = bytes(self._received[COMMAND.size : end])
            del self._received[:end]
            self._run(letter, number, contents)
        return bool(data)

    def _run(self, letter: bytes, number: int, contents: bytes) -> None:
        if letter == FORK:
            self._fork(number)
        elif letter == KILL:
            for pid, each in self._numbers.items():
                if each == number:
                    os.kill(pid, signal.SIGKILL)
        elif letter == LOAD:
            self._heartbeat.beat(self._options.load_s)
            self._jobs.load(pickle.loads(contents))
            gc.collect()
            gc.freeze()

    def _fork(self, number: int) -> None:
        fd = self._sockets.pop(0)
        parent_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(fd)
            self._control.sendall(ENDED.pack(number, 1))
            return
        if pid:
            os.close(fd)
            self._numbers[pid] = number
            return
        try:
            self._become_worker(fd, parent_pid)
            os._exit(0)
        finally:
            os._exit(1)

    def _become_worker(self, fd: int, parent_pid: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        faulthandler.unregister(END_SIGNAL)
        self._heartbeat.close()
        os.close(self._options.page_fd)
        for other in (self._control, self._wakeup, self._wakeup_write):
            other.close()
        for each in self._sockets:
            os.close(each)
        confine(parent_pid)
        limits = ProcessLimits(self._options.cpu_s, self._options.memory_bytes)
        serve(socket.socket(fileno=fd), self._jobs, self._codec, limits)

    def _reap(self) -> None:
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number = self._numbers.pop(pid, None)
            if number is not None:
                with contextlib.suppress(OSError):
                    self._control.sendall(
                        ENDED.pack(number, os.waitstatus_to_exitcode(status)), socket.MSG_DONTWAIT
                    )


def arguments(options: Options) -> list[str]:
    """Return the command for a fork server that inherits the descriptors."""
    module = "vinery_serving.gateway.workers.fork_server"
    return [sys.executable, "-P", "-m", module, json.dumps(options)]


def main() -> None:
    options = Options(*json.loads(sys.argv[1]))
    control = socket.socket(fileno=options.control_fd)
    jobs = cast(JobsModule, importlib.import_module(options.jobs))
    ForkServer(control, jobs, options).run()


if __name__ == "__main__":
    main()
