"""The input of a job's process, and the report on standard output: JSON lines, the last with the
result or an error.

    {"stage": "fetching model.safetensors", "done_bytes": 12, "total_bytes": 40}
    {"result": {"folder": "..."}}
    {"error": "The repository does not exist. ..."}

A process that ends without a result or an error was killed, and the job restarts. Other lines are
log.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import msgspec

# Progress that comes more often is dropped, unless the stage changes.
_INTERVAL_S: Final = 0.2
Bytes = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # as the database stores them


class JobFailed(Exception):
    """The job cannot succeed as it is. The message gives administrators reason and remedy."""


@contextmanager
def locked(path: Path, busy: JobFailed, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of a file, which ends with the process. Raises `busy` while another process
    holds it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        yield
    finally:
        os.close(handle)


class JobDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The standard input of a job's process."""

    kind: str
    action: str = "run"  # or `discard`: delete what the job has made so far
    job_id: int
    node_pid: int  # the process that has started this one
    model: str  # the name of the served model
    home: Path
    parameters: dict[str, Any] = {}
    secret: str = ""  # the part of the URL after the shown one
    # Of the sockets of the model's engine and of the node: for a job that asks the engine.
    engine_key: bytes = b""
    node_key: bytes = b""
    # With which a job connects to other hosts, see `cluster.authority`.
    authorities: list[bytes] = []
    host_key: str = ""

    @classmethod
    def from_json(cls, text: bytes) -> JobDocument:
        return msgspec.json.decode(text, type=cls, dec_hook=lambda kind, value: kind(value))

    def to_json(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str)


class JobLine(msgspec.Struct, frozen=True):
    """A line of standard output. Progress has a stage."""

    stage: str = ""
    done_bytes: Bytes = 0
    total_bytes: Bytes | None = None
    result: dict[str, Any] | None = None
    error: str = ""


class Reporter:
    def __init__(self, output: TextIO | None = None) -> None:
        self._output = output or sys.stdout
        self._stage = ""
        self._next_at_s = 0.0

    def progress(self, stage: str, done_bytes: int = 0, total_bytes: int | None = None) -> None:
        """Report the stage, the beginning of a sentence such as `fetching config.json`."""
        now_s = time.monotonic()
        if stage == self._stage and now_s < self._next_at_s and done_bytes != total_bytes:
            return
        self._stage, self._next_at_s = stage, now_s + _INTERVAL_S
        self._write({"stage": stage, "done_bytes": done_bytes, "total_bytes": total_bytes})

    def result(self, values: Mapping[str, Any]) -> None:
        self._write({"result": dict(values)})

    def error(self, sentence: str) -> None:
        self._write({"error": sentence})

    def _write(self, values: Mapping[str, Any]) -> None:
        self._output.write(json.dumps(values) + "\n")
        self._output.flush()
