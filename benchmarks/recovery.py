"""How soon a platform is itself again: after a client that left, and after an engine that died.

A client leaves in the middle of a streamed answer, alone or beside others, and the engine's
own count of what it generates is read every 5 ms until there is one less. An engine is killed,
and the time until the next request has its answer is set beside the time that the new process
takes, from its start: that of loading the model. An engine that dies soon after its start is
started ever more slowly (0.1 s, 0.2 s, 0.4 s...), so that kills in a row show this, too.
"""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from typing import Final

import psutil

from benchmarks.compare import Spread
from benchmarks.load import Endpoint
from benchmarks.platform_under_test import OwnPlatform, PlatformFailed, wait_until_it_answers
from benchmarks.progress import show
from benchmarks.settings import TINY_CHAT

_POLL_INTERVAL_S: Final = 0.005
_GIVE_UP_S: Final = 60.0
_RUNNING: Final = "vllm:num_requests_running"
# It takes seconds, so that none ends by itself before it is seen to have gone.
_LONG_ANSWER: Final = {
    "model": TINY_CHAT,
    "prompt": "Once upon a time",
    "max_tokens": 1900,
    "ignore_eos": True,
    "stream": True,
}


@dataclass(frozen=True)
class Departure:
    """A client that left one way, `num_streams` having run until then."""

    way: str
    num_streams: int
    free_ms: Spread  # until its slot in the engine was free; the median of all trials


@dataclass(frozen=True)
class Restart:
    """One engine that was killed."""

    answered_s: float  # from the kill to the next answer
    loading_s: float  # of that, since the new process was started


@dataclass(frozen=True)
class RecoveryResult:
    """All that was measured."""

    departures: tuple[Departure, ...]
    restarts: tuple[Restart, ...]


def measure_recovery(
    platform: OwnPlatform, streams: tuple[int, ...], num_trials: int
) -> RecoveryResult:
    """The platform must serve the reference model. Raises PlatformFailed when something does
    not come back at all."""
    wait_until_it_answers(platform.endpoint, TINY_CHAT)
    departures = tuple(
        _departure(platform.endpoint, way, num_streams, num_trials)
        for num_streams in streams
        for way in _WAYS
    )
    return RecoveryResult(departures, tuple(_restart(platform) for _ in range(num_trials)))


# Clients


def _close(endpoint: Endpoint, stack: ExitStack) -> Callable[[], None]:
    return stack.enter_context(_open_stream(endpoint)).close


def _close_sending_half(endpoint: Endpoint, stack: ExitStack) -> Callable[[], None]:
    stream = stack.enter_context(_open_stream(endpoint))
    return lambda: stream.shutdown(socket.SHUT_WR)


def _kill(endpoint: Endpoint, stack: ExitStack) -> Callable[[], None]:
    context = multiprocessing.get_context("spawn")
    near_end, far_end = context.Pipe()
    process = context.Process(target=_stream_until_killed, args=(endpoint, far_end), daemon=True)
    process.start()
    stack.callback(process.join)
    stack.callback(process.kill)
    near_end.recv()
    return process.kill


# How a client leaves, by name: opens a stream, and gives what ends it.
_WAYS: Final[Mapping[str, Callable[[Endpoint, ExitStack], Callable[[], None]]]] = {
    "closed": _close,
    "closed its sending half": _close_sending_half,
    "killed": _kill,
}


def _open_stream(endpoint: Endpoint) -> socket.socket:
    """A connection on which an answer has begun."""
    stream = socket.create_connection(endpoint.address, timeout=_GIVE_UP_S)
    stream.sendall(endpoint.post("/v1/completions", _LONG_ANSWER))
    received = b""
    while b"\ndata: " not in received:
        data = stream.recv(1 << 16)
        received += data
        if not data or not received.startswith(b"HTTP/1.1 200"[: len(received)]):
            raise PlatformFailed(f"no answer to leave: {received[:2000].decode()}")
    return stream


def _stream_until_killed(endpoint: Endpoint, pipe: Connection) -> None:
    with _open_stream(endpoint) as stream:
        pipe.send("begun")
        while stream.recv(1 << 16):
            pass


def _departure(endpoint: Endpoint, way: str, num_streams: int, num_trials: int) -> Departure:
    free_ms = [_free_after_s(endpoint, way, num_streams) * 1e3 for _ in range(num_trials)]
    show(f"  {way}, one of {num_streams} streams: {', '.join(f'{ms:.0f}' for ms in free_ms)} ms")
    return Departure(way, num_streams, Spread.of(free_ms))


def _free_after_s(endpoint: Endpoint, way: str, num_streams: int) -> float:
    with closing(HTTPConnection(*endpoint.address, timeout=_GIVE_UP_S)) as metrics:
        with ExitStack() as stack:
            for _ in range(num_streams - 1):
                stack.enter_context(_open_stream(endpoint))
            leave = _WAYS[way](endpoint, stack)
            _wait(lambda: _num_running(metrics) == num_streams)
            leave()
            free_after_s = _wait(lambda: _num_running(metrics) == num_streams - 1)
        _wait(lambda: _num_running(metrics) == 0)
    return free_after_s


def _num_running(metrics: HTTPConnection) -> int:
    metrics.request("GET", "/metrics")
    lines = metrics.getresponse().read().decode().splitlines()
    values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(_RUNNING)]
    return int(sum(map(float, values)))


def _wait(condition: Callable[[], bool]) -> float:
    """How long it took to become true, in seconds. Raises PlatformFailed."""
    began_s = time.perf_counter()
    while not condition():
        if time.perf_counter() - began_s > _GIVE_UP_S:
            raise PlatformFailed("the engine's slots do not become free or taken")
        time.sleep(_POLL_INTERVAL_S)
    return time.perf_counter() - began_s


# Engines


def _restart(platform: OwnPlatform) -> Restart:
    engine = platform.engine()
    if engine is None:
        raise PlatformFailed("there is no engine to kill")
    engine.kill()
    killed_s = time.perf_counter()
    wait_until_it_answers(platform.endpoint, TINY_CHAT)
    answered_s = time.perf_counter() - killed_s
    replacement = platform.engine()
    if replacement is None or replacement.pid == engine.pid:
        raise PlatformFailed("the killed engine has no replacement")
    restart = Restart(answered_s, _age_s(replacement))
    show(f"  killed engine: {restart.answered_s:.2f} s, of these {restart.loading_s:.2f} s loading")
    return restart


def _age_s(process: psutil.Process) -> float:
    """How long ago a process was started. The system counts that from its own start, which is
    not quite what other clocks do: so it is compared with a process that starts now."""
    with subprocess.Popen([sys.executable, "-c", ""]) as newborn:
        return psutil.Process(newborn.pid).create_time() - process.create_time()
