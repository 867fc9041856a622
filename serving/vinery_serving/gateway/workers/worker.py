"""The fork server of a web process, `python -m` this module, its worker processes, which run one
call at a time with limits on memory and CPU time, and the messages between all of them.

The fork server has imported what jobs need, so that a worker process starts within milliseconds.
Nothing comes from the web process: no environment, no secrets, no connections. It opens no sockets
and runs no programs, and a worker may do less, see `confine_worker`. It reads commands from a
socket and gives signs of life. When the socket closes, the workers and the fork server end.

The web process may kill a worker at any time, and does not trust the answers, because workers read
what clients send. An answer is a pickle that names no classes: a value of a known type is the
type's number in a list, and the fields. Reading can only build values of these types.
"""

import contextlib
import faulthandler
import gc
import importlib
import io
import json
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, Final, NamedTuple

from msgspec import Struct

from vinery_serving.core import errors
from vinery_serving.core.errors import InvalidRequest, ServingError
from vinery_serving.processes import parent
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
BEGUN: Final = b"b"  # a worker that has been forked sends this first
CALL: Final = struct.Struct("!QQ")  # A call: the lengths of a pickle and of the body, then both
# An answer: the kind, whether the worker is of no more use, and the length of the contents.
ANSWER: Final = struct.Struct("!c?Q")
RESULT: Final = b"r"
REFUSAL: Final = b"e"
FAILURE: Final = b"f"
MAX_ANSWER_BYTES: Final = 256 * 2**20
_ERRORS: Final = {
    each.__name__: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, ServingError)
}
# A worker whose memory has grown by more is replaced after its call.
_MAX_GROWTH_BYTES: Final = 128 * 2**20
# What no call may exceed, whatever its own limits: a call that reads a model needs most.
_HARD_LIMITS: Final = {
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NOFILE: 256,
    resource.RLIMIT_CPU: 3600,
}
_MAX_MEMORY_BYTES: Final = 8 * 2**30
_statm: list[int] = []  # the open file of /proc about this process
_MAX_FRAMES: Final = 12


class Options(NamedTuple):
    """The options of a fork server. The next sign of life in the shared page comes within
    `limit_s`, and within `load_s` while something loads."""

    control_fd: int
    jobs: str  # the name of a module
    cpu_s: int  # of one call, as the memory
    memory_bytes: int
    page_fd: int
    limit_s: float
    load_s: float


class ForkServer:
    def __init__(self, jobs: ModuleType, options: Options) -> None:
        self._control = Connection(options.control_fd)
        self._jobs, self._options = jobs, options
        self._heartbeat = Page(options.page_fd)
        self._numbers: dict[int, int] = {}  # of workers, by process id
        self._wakeup, self._wakeup_write = socket.socketpair()

    def run(self) -> None:
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
    module = "vinery_serving.gateway.workers.worker"
    return [sys.executable, "-P", "-m", module, json.dumps(options)]


# -- A worker process


class Session:
    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.body = b""


def serve(connection: socket.socket, jobs: ModuleType, limits: Options) -> None:
    connection.sendall(BEGUN)
    gc.disable()  # the process is replaced before garbage in cycles matters
    first_peak = _peak_memory_bytes()
    session = Session()
    with connection.makefile("rb") as calls:
        while head := calls.read(CALL.size):
            num_bytes, num_body_bytes = CALL.unpack(head)
            call, body = calls.read(num_bytes), calls.read(num_body_bytes)
            if not call:  # the end of a session
                session = Session()
                continue
            session.body = body
            kind, answer = _answer(jobs, limits, session, call)
            session.body = b""
            del call, body
            is_spent = _peak_memory_bytes() - first_peak > _MAX_GROWTH_BYTES
            connection.sendall(ANSWER.pack(kind, is_spent, len(answer)))
            connection.sendall(answer)


def _answer(
    jobs: ModuleType, limits: Options, session: Session, call: bytes
) -> tuple[bytes, bytes]:
    try:
        job, arguments = pickle.loads(call)  # from the web process
        _limit(resource.RLIMIT_CPU, resource.RLIM_INFINITY)
        _limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)
        jobs.before_call(arguments)
        _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + limits.cpu_s)
        if address_bytes := _address_space_bytes():
            _limit(resource.RLIMIT_AS, address_bytes + limits.memory_bytes)
        return RESULT, jobs.CODEC.dumps(job(session, *arguments))
    except ServingError as error:
        return REFUSAL, encode_refusal(error)
    except MemoryError:
        return REFUSAL, encode_refusal(too_large())
    except BaseException as error:  # also an exit: the web process waits for an answer
        return FAILURE, _described(error).encode()


def too_large(param: str | None = None) -> ServingError:
    return InvalidRequest(
        "The request takes too long or too much memory to be read. Send a smaller one, or a "
        "simpler schema, grammar, template or file.",
        param=param,
    )


def _described(error: BaseException) -> str:
    """The type of an error and its stack. Its message may contain a client's text."""
    frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
    stack = (f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__} (at {' < '.join(stack)})"


def confine_worker(parent_pid: int, connection: int, reads: Sequence[Path]) -> None:
    """Let this process end with the parent, without standard streams, and read these files."""
    parent.end_with(parent_pid)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    with contextlib.suppress(OSError):
        _statm[:] = [os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)]
    limits = dict(_HARD_LIMITS)
    if address_bytes := _address_space_bytes():
        limits[resource.RLIMIT_AS] = address_bytes + _MAX_MEMORY_BYTES
    kept = frozenset((0, 1, 2, connection, *_statm))
    confine(Needs(reads=reads, descriptors=kept, limits=limits))


def _limit(limit: int, soft: int) -> None:
    _, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(limit, (soft, hard))


def _address_space_bytes() -> int:
    """0: unknown on this system, and then memory has no limit."""
    return int(os.pread(_statm[0], 64, 0).split()[0]) * resource.getpagesize() if _statm else 0


def _peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# -- Answers


class BrokenAnswer(Exception):
    """A worker's answer is malformed."""


class Codec:
    """Writes and reads results that consist of builtin values and of `types`: dataclasses, structs,
    enums, paths, and classes whose instances have no state. Both ends need the same list."""

    def __init__(self, types: Sequence[type]) -> None:
        self._numbers = {each: number for number, each in enumerate(types)}
        self._readers = [_reader(each) for each in types]
        self._names = {each: _field_names(each) for each in types}
        for each in types:
            if issubclass(each, Enum):  # whose members a pickle could change for the whole process
                setattr(each, "__setstate__", _refuse_state)  # noqa: B010

    def dumps(self, value: object) -> bytes:
        """Raises for values of other types."""
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, protocol=5)
        pickler.identify = self._identify
        pickler.dump(value)
        return buffer.getvalue()

    def loads(self, data: bytes) -> Any:
        """Raises `BrokenAnswer`."""
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.build = self._build
        try:
            return unpickler.load()
        except Exception as error:  # bytes of a hostile worker may cause any
            raise BrokenAnswer(type(error).__name__) from None

    def _identify(self, value: object) -> tuple[object, ...] | None:
        kind = type(value)
        number = self._numbers.get(kind)
        if number is None:
            return None
        if isinstance(value, Enum):
            return number, value.value
        if isinstance(value, PurePath):
            return number, str(value)
        return number, *(getattr(value, name) for name in self._names[kind])

    def _build(self, parts: Any) -> object:
        number, *values = parts
        return self._readers[number](*values)


class _Pickler(pickle.Pickler):
    identify: Callable[[object], tuple[object, ...] | None]

    def persistent_id(self, value: object) -> tuple[object, ...] | None:
        return self.identify(value)


class _Unpickler(pickle.Unpickler):
    build: Callable[[Any], object]

    def persistent_load(self, parts: Any) -> object:
        return self.build(parts)

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError("an answer names no classes")


def _refuse_state(member: object, state: object) -> None:
    raise pickle.UnpicklingError("an answer changes no member of an enumeration")


def _field_names(kind: type) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return kind.__struct_fields__ if issubclass(kind, Struct) else ()


def _reader(kind: type) -> Callable[..., object]:
    names = _field_names(kind)
    if not is_dataclass(kind):
        return kind
    return lambda *values: kind(**dict(zip(names, values, strict=True)))


def encode_refusal(error: ServingError) -> bytes:
    parts = type(error).__name__, error.template, error.param, error.code, error.type
    return pickle.dumps(parts, protocol=5)


def decode_refusal(data: bytes) -> ServingError:
    """Return the error that a worker raised. Raises `BrokenAnswer`."""
    parts = Codec(()).loads(data)
    try:
        name, message, param, code, type_ = parts
        kind = _ERRORS[name]
    except (TypeError, ValueError, LookupError):
        raise BrokenAnswer("refusal") from None
    error = kind.__new__(kind)
    ServingError.__init__(error, message, param=param, code=code)
    if error.type != type_:
        error.type = type_
    return error


def main() -> None:
    options = Options(*json.loads(sys.argv[1]))
    server = ForkServer(importlib.import_module(options.jobs), options)
    # The folders of later models are not known: workers alone have rules for files.
    acts = frozenset((Act.FORK, Act.SIGNAL, Act.OUTLIVE, Act.OWN))
    confine(Needs(reads=None, descriptors=None, acts=acts))
    server.run()


if __name__ == "__main__":
    main()
