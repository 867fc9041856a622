"""Log files in the folder of a home, such as `web-1.log` and `engine-tiny-chat.log`, of bounded
size: a full file becomes `NAME.log.1`, and a new one begins.

Several processes may write to a file, such as a web process and its successor. Each appends whole
lines with one system call. A writer whose file was renamed or removed opens a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SUFFIX: Final = ".log"
_ENGINE: Final = "engine-"
# Logs of models that are no longer served. More of them are deleted, the oldest first.
_MAX_FORMER: Final = 20
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class LogBounds:
    max_bytes: int = 10 << 20  # of a file
    num_files: int = 5  # the present one and the older ones


def open_log(path: Path) -> int:
    """Open a log file to append, with mode 0600. Raises OSError."""
    return os.open(path, _FLAGS, 0o600)


class LogFile:
    """Writes to a log file. A disk that fails costs lines, and never raises. `fd` stays the same
    number for good, so that native code may write to it. With an `fd` that is open already, such as
    2, this one is used."""

    def __init__(self, path: Path, bounds: LogBounds, fd: int | None = None) -> None:
        self._path = path
        self._bounds = bounds
        self.fd = fd
        self._is_torn = False
        self.check()

    def write(self, lines: bytes) -> bool:
        """Append lines, which end in a line break. Returns whether all of them are written."""
        self.check(len(lines))
        if self.fd is None:
            return False
        data = b"\n" + lines if self._is_torn else lines
        try:
            num_written = os.write(self.fd, data)
        except OSError:
            return False
        self._is_torn = num_written < len(data) and data[num_written - 1 : num_written] != b"\n"
        return num_written == len(data)

    def check(self, num_bytes: int = 0) -> None:
        """Open the file if the path names a new one, and rotate if `num_bytes` do not fit."""
        with contextlib.suppress(OSError):
            size = self._size()
            if size is None:
                self._open()
            elif size and size + num_bytes > self._bounds.max_bytes:
                self._rotate()

    def _size(self) -> int | None:
        """Return the size of our file; None if the path names no file, or another one."""
        if self.fd is None:
            return None
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return None
        return there.st_size if os.path.samestat(there, os.fstat(self.fd)) else None

    def _open(self) -> None:
        new = open_log(self._path)
        if self.fd is None:
            self.fd = new
            return
        os.dup2(new, self.fd, inheritable=os.get_inheritable(self.fd))
        os.close(new)

    def _rotate(self) -> None:
        """Rename all files. Another process that rotates at the same time does it for both."""
        assert self.fd is not None
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            if self._size() is not None:
                self._shift()
        finally:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        self._open()

    def _shift(self) -> None:
        for number in itertools.count(self._bounds.num_files):  # of an earlier, larger bound
            try:
                numbered(self._path, number).unlink()
            except FileNotFoundError:
                break
        if self._bounds.num_files == 1:
            self._path.unlink()
        for number in range(self._bounds.num_files - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                numbered(self._path, number - 1).replace(numbered(self._path, number))


# -- Names


def log_path(folder: Path, process: str) -> Path:
    # Names of models may have slashes, and never a plus.
    return folder / f"{process.replace('/', '+')}{_SUFFIX}"


def engine_name(model: str) -> str:
    """Return the name of the engine process of a model, as in its log lines."""
    return f"{_ENGINE}{model}"


def process_of(path: Path) -> str:
    return path.name.removesuffix(_SUFFIX).replace("+", "/")


def log_paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIX))


def engine_logs(folder: Path) -> set[Path]:
    return {path for path in log_paths(folder) if path.name.startswith(_ENGINE)}


def numbered(path: Path, number: int) -> Path:
    """Return the path of an older file; 0: the present one."""
    return path.with_name(f"{path.name}.{number}") if number else path


def older_files(path: Path) -> Iterator[Path]:
    """Return the older files of a process, the newest first. A killed process may have left a
    gap in their numbers. Raises OSError."""
    prefix = f"{path.name}."
    endings = (each.name.removeprefix(prefix) for each in path.parent.glob(f"{path.name}.*"))
    for number in sorted(int(ending) for ending in endings if ending.isdecimal()):
        yield numbered(path, number)


def delete_former_engines(folder: Path, models: Collection[str]) -> None:
    """Delete the oldest logs of engines of models that are not served, if there are many."""
    kept = {log_path(folder, engine_name(model)) for model in models}
    with contextlib.suppress(OSError):
        former = sorted(
            engine_logs(folder) - kept, key=lambda path: path.stat().st_mtime, reverse=True
        )
        for path in former[_MAX_FORMER:]:
            for each in (*older_files(path), path):
                each.unlink(missing_ok=True)
