"""Fetches one file, and continues an earlier attempt.

The downloads of `huggingface_hub` 2 begin again after a kill, so this module keeps the bytes and
uses only the client. The digest finds wrong content, whatever an earlier attempt has left.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.repository import RepositoryFile

_BLOCK_BYTES: Final = 1 << 20
# A connection that is silent for so many seconds is ended.
_STALL_S: Final = 30.0
# Attempts in a row that bring no byte, and attempts in all.
_MAX_ATTEMPTS: Final = 6
_MAX_ATTEMPTS_IN_ALL: Final = 60
# The wait is doubled after each attempt that brings no byte; a hub may ask for a longer one.
_FIRST_WAIT_S: Final = 1.0
_MAX_WAIT_S: Final = 30.0
_MAX_ASKED_WAIT_S: Final = 300.0


class WrongContent(PullFailed):
    """The bytes do not have the listed size or digest."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The bytes of a file from `start` on, which is 0 where a server cannot begin later."""

    start: int
    parts: Iterator[bytes]


Open = Callable[[int, float], AbstractContextManager[Stream]]
"""Begins to read a file at a byte; a connection that is silent for so many seconds is ended. Raises
`PullFailed`, `HubUnavailable` for what may pass, and `WrongContent` if the file ends before."""


def fetch(open_: Open, file: RepositoryFile, path: Path, advance: Callable[[int], None]) -> None:
    """Fetch a file to `path`, where an earlier attempt may have left its beginning. `advance` gets
    the bytes that came; less than 0 if some are dropped. Raises `PullFailed`, with the file's name
    if its content is wrong twice."""
    try:
        _attempt(open_, file, path, advance)
    except WrongContent:
        advance(-_size(path))
        path.unlink(missing_ok=True)
        _attempt(open_, file, path, advance)


def _attempt(open_: Open, file: RepositoryFile, path: Path, advance: Callable[[int], None]) -> None:
    """Fetch the missing bytes in several attempts, and check the whole file."""
    attempts, in_row = 0, 0
    while (before := _size(path)) != file.size_bytes or not path.exists():
        try:
            _append(open_, file, path, advance)
        except HubUnavailable as error:
            attempts += 1
            in_row = 0 if _size(path) > before else in_row + 1
            if in_row >= _MAX_ATTEMPTS or attempts >= _MAX_ATTEMPTS_IN_ALL:
                raise
            wait_s = min(_FIRST_WAIT_S * 2**in_row, _MAX_WAIT_S)
            time.sleep(max(wait_s, min(error.retry_after_s, _MAX_ASKED_WAIT_S)))
    _check_content(file, path)


def _append(open_: Open, file: RepositoryFile, path: Path, advance: Callable[[int], None]) -> None:
    path.touch()
    with open_(_size(path), _STALL_S) as stream, path.open("r+b") as target:
        position = stream.start
        advance(position - _size(path))
        target.truncate(position)
        target.seek(position)
        for part in stream.parts:
            position += len(part)
            if position > file.size_bytes:
                raise WrongContent(f"{file.path} is longer than listed.")
            target.write(part)
            advance(len(part))
        if position < file.size_bytes:
            raise WrongContent(f"{file.path} is shorter than listed.")


def _check_content(file: RepositoryFile, path: Path) -> None:
    """Raises `WrongContent` if a file has another digest than the hub lists."""
    if not (listed := file.sha256 or file.git_sha1):
        return
    head = b"blob %d\0" % file.size_bytes
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(head, usedforsecurity=False)
    with path.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
        os.fsync(content.fileno())
    if digest.hexdigest() != listed:
        raise WrongContent(
            f"{file.path} has another content than is listed: its digest differs. Try again "
            "later, or name another revision."
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# -- The progress of a pull: the stage, the bytes done and in all

Report = Callable[[str, int, int | None], None]
"""Takes a stage, the bytes that are done, and the bytes in all; None: unknown."""


class Progress:
    """Counts bytes, and reports them with each new stage and whenever some have come."""

    def __init__(self, report: Report, total_bytes: int, done_bytes: int = 0) -> None:
        self._report, self._stage = report, ""
        self._total, self._done = total_bytes, done_bytes

    def enter(self, stage: str) -> None:
        self._stage = stage
        self.advance(0)

    def advance(self, num_bytes: int) -> None:
        """Count fetched bytes; less than 0: dropped bytes."""
        self._done += num_bytes
        self._report(self._stage, self._done, self._total)
