"""The worker process: runs one call at a time, with limits on memory and CPU time.

It has no environment of the server, writes no files, and ends with its parent. The web process
may kill it at any time.
"""

import contextlib
import gc
import os
import pickle
import resource
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from vinery_serving.core.errors import InvalidRequest, ServingError
from vinery_serving.gateway.workers.wire import (
    ANSWER,
    BEGUN,
    CALL,
    FAILURE,
    REFUSAL,
    RESULT,
    Codec,
    encode_refusal,
)
from vinery_serving.processes import parent

# A worker whose memory has grown by more is replaced after its call.
_MAX_GROWTH_BYTES: Final = 128 * 2**20
_MAX_OPEN_FILES: Final = 256
_STATM: Final = Path("/proc/self/statm")
_MAX_FRAMES: Final = 12


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    cpu_s: int
    memory_bytes: int


class JobsModule(Protocol):
    RESULT_TYPES: tuple[type, ...]

    def load(self, wanted: Any, /) -> None:
        """Load what many calls need, before the fork. Must not raise."""

    def before_call(self, arguments: tuple[Any, ...], /) -> None:
        """Load what these arguments of a call need and `load` did not. It has no limits of its
        own."""


class Session:
    """What the calls of one client leave for each other, and the body of the present call."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.body = b""


def serve(connection: socket.socket, jobs: JobsModule, codec: Codec, limits: ProcessLimits) -> None:
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
            kind, answer = _answer(jobs, codec, limits, session, call)
            session.body = b""
            del call, body
            is_spent = _peak_memory_bytes() - first_peak > _MAX_GROWTH_BYTES
            connection.sendall(ANSWER.pack(kind, is_spent, len(answer)))
            connection.sendall(answer)


def _answer(
    jobs: JobsModule, codec: Codec, limits: ProcessLimits, session: Session, call: bytes
) -> tuple[bytes, bytes]:
    try:
        job, arguments = pickle.loads(call)  # from the web process
        _limit(resource.RLIMIT_CPU, resource.RLIM_INFINITY)
        _limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)
        jobs.before_call(arguments)
        _limit_call(limits)
        return RESULT, codec.dumps(job(session, *arguments))
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


def confine(parent_pid: int) -> None:
    """Let this process end with its parent, and close what it does not need."""
    parent.end_with(parent_pid)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
    ):
        with contextlib.suppress(ValueError, OSError):  # lower already
            resource.setrlimit(limit, (value, value))


def _limit_call(limits: ProcessLimits) -> None:
    used_s = int(time.process_time()) + 1
    _limit(resource.RLIMIT_CPU, used_s + limits.cpu_s)
    if address_bytes := _address_space_bytes():
        _limit(resource.RLIMIT_AS, address_bytes + limits.memory_bytes)


def _limit(limit: int, soft: int) -> None:
    _, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(limit, (soft, hard))


def _address_space_bytes() -> int:
    """0: unknown on this system, and then memory has no limit."""
    try:
        return int(_STATM.read_bytes().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
