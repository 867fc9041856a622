"""A process that reads files of strangers answers within its limits, and reaches nothing else."""

import asyncio
import itertools
import os
import resource
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.processes import apart
from vinery_serving.processes.apart import NoAnswer, run_apart
from vinery_serving.processes.child import ChildProcess

SECRET = Path("/etc/passwd")


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path) -> bytes:
    path.write_bytes(b"x")
    return b"written"


def connect() -> bytes:
    socket.socket()
    return b"connected"


def fork() -> bytes:
    if not os.fork():
        os._exit(0)
    return b"forked"


def loop() -> bytes:
    for _ in itertools.count():
        pass
    return b"ended"


def grow() -> bytes:
    return bytes(2**40)[:1]


def flood() -> bytes:
    return bytes(2**25)


def crash() -> bytes:
    os.abort()


async def test_a_process_reads_what_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert await run_apart(read, tmp_path / "file", reads=[tmp_path]) == b"content"


@table(
    "work",
    [
        partial(read, SECRET),
        partial(write, Path("/tmp/written")),
        connect,
        fork,
        grow,
        loop,
        flood,
        crash,
    ],
)
async def test_what_strangers_could_try_gives_no_answer(
    monkeypatch: pytest.MonkeyPatch, work: Callable[..., bytes]
) -> None:
    monkeypatch.setitem(apart._LIMITS, resource.RLIMIT_CPU, 1)
    with pytest.raises(NoAnswer, match="takes more than 1 s or 4 GB"):
        await run_apart(work)


async def test_others_go_on_meanwhile_and_a_reader_that_is_left_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[ChildProcess] = []

    class Recorded(ChildProcess):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(apart, "ChildProcess", Recorded)
    reading = asyncio.create_task(run_apart(loop, within_s=3600))
    for _ in range(100):
        await asyncio.sleep(0.01)
    assert not reading.done()

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert started[0].has_ended
