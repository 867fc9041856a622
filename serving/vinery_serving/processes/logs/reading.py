"""Reads the log of one process from the end, and follows new lines.

Files are read while they are written, renamed and removed. A line that no logger has written, such
as a stack of a crash, has the time of the line before it.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vinery_serving.processes.logs.file import older_files, process_of
from vinery_serving.processes.logs.lines import LogEntry, foreign_entry, read_entry, time_text

_BLOCK_BYTES: Final = 64 << 10
# A longer line is cut in two.
_MAX_LINE_BYTES: Final = 64 << 10
# The most that one call reads.
_MAX_READ_BYTES: Final = 1 << 20
# How many lines of no logger wait for their time.
_MAX_FOREIGN: Final = 10_000
# The end of a log that is read to show the last lines.
_TAIL_BYTES: Final = 256 << 10
# Of a position, which clients send back.
_MAX_POSITION_CHARS: Final = 40
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class LogFollower:
    """The log of one process: the lines until now backwards, and new lines. The follower holds the
    present file open, so that a renamed file is read to the end. Raises OSError if the file exists
    and cannot be read."""

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        """`from_start`: follow from the start of the file, not from the present end."""
        self._path = path
        self._process = process_of(path)
        self._fd: int | None = None
        self._at = 0  # bytes of the file that are read
        self._rest = b""  # the beginning of a line
        self._time = ""  # of the newest event
        with contextlib.suppress(FileNotFoundError):
            fd = self._open(path)
            self._at = 0 if from_start else os.fstat(fd).st_size

    @classmethod
    def after(cls, path: Path, position: str) -> LogFollower:
        """Go on after a `position`, also if that file has been renamed since. If it is gone, or the
        position is none, from the start of the present file."""
        follower = cls(path, from_start=True)
        inode, _, offset = position.partition("-")
        if inode.isdecimal() and offset.isdecimal() and len(position) < _MAX_POSITION_CHARS:
            follower._find(int(inode), int(offset))
        return follower

    @property
    def position(self) -> str:
        """The position as a file and the number of bytes read. `after` continues there."""
        if self._fd is None:
            return ""
        return f"{os.fstat(self._fd).st_ino}-{self._at - len(self._rest)}"

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def backwards(self) -> Iterator[LogEntry]:
        """Yield the events before those that `read` returns, the newest first."""
        yield from _entries_backwards(self._lines_backwards(), self._process, self._mtime())

    def read(self) -> list[LogEntry]:
        """Return the events since the last call, of a long log at most some thousand. An empty list
        means that there are no more yet."""
        is_replaced = self._is_replaced()
        lines = self._new_lines()  # also what came before it was renamed
        if is_replaced and not lines:
            with contextlib.suppress(FileNotFoundError):
                self._open(self._next_file())
            lines = self._new_lines()
        return [self._entry(line) for line in lines]

    def _find(self, inode: int, offset: int) -> None:
        """Continue in this file, unless the file is gone."""
        for path in (self._path, *older_files(self._path)):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    self._open(path)
                    self._at = offset
                    return

    def _open(self, path: Path) -> int:
        new = os.open(path, _READ_FLAGS)
        self.close()
        self._fd, self._at, self._rest = new, 0, b""
        return new

    def _is_replaced(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return self._fd is None or not os.path.samestat(there, os.fstat(self._fd))

    def _next_file(self) -> Path:
        """The file after the one that is read, or the present one if ours was removed."""
        if self._fd is not None:
            ours, newer = os.fstat(self._fd), self._path
            for path in older_files(self._path):
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(path.stat(), ours):
                        return newer
                newer = path
        return self._path

    def _new_lines(self) -> list[bytes]:
        if self._fd is None:
            return []
        if os.fstat(self._fd).st_size < self._at:  # an administrator has emptied it
            self._at, self._rest = 0, b""
        lines: list[bytes] = []
        end = self._at + _MAX_READ_BYTES
        while self._at < end and (block := os.pread(self._fd, _BLOCK_BYTES, self._at)):
            self._at += len(block)
            *whole, self._rest = (self._rest + block).split(b"\n")
            lines += whole
            if len(self._rest) > _MAX_LINE_BYTES:
                lines.append(self._rest)
                self._rest = b""
        return [line for line in lines if line]

    def _entry(self, line: bytes) -> LogEntry:
        entry = read_entry(line) or foreign_entry(line, self._time or self._mtime(), self._process)
        self._time = entry.time
        return entry

    def _mtime(self) -> str:
        return "" if self._fd is None else time_text(os.fstat(self._fd).st_mtime)

    def _lines_backwards(self) -> Iterator[bytes]:
        if self._fd is None:
            return
        ours = os.fstat(self._fd)
        yield from _file_backwards(self._fd, self._at)
        for path in older_files(self._path):
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(path, _READ_FLAGS)
                try:
                    # Our own file may have been renamed to this name meanwhile.
                    if not os.path.samestat(os.fstat(fd), ours):
                        yield from _file_backwards(fd, os.fstat(fd).st_size)
                finally:
                    os.close(fd)


def last_lines(path: Path, num_lines: int) -> list[LogEntry]:
    """Return the last events of a log, the oldest first. Raises OSError; FileNotFoundError if
    there is no log."""
    path.stat()
    follower = LogFollower(path)
    found: deque[LogEntry] = deque()
    num_bytes = 0
    try:
        for entry in follower.backwards():
            num_bytes += len(entry.message)
            if len(found) == num_lines or num_bytes > _TAIL_BYTES:
                break
            found.appendleft(entry)
    finally:
        follower.close()
    return list(found)


def _file_backwards(fd: int, end: int) -> Iterator[bytes]:
    """Yield the lines before this byte, the last one first."""
    rest = b""
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        block = os.pread(fd, end - begin, begin)
        end = begin
        rest, *lines = (block + rest).split(b"\n")
        yield from (line for line in reversed(lines) if line)
        if len(rest) > _MAX_LINE_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest


def _entries_backwards(lines: Iterator[bytes], process: str, mtime: str) -> Iterator[LogEntry]:
    """A line of no logger has the time of the one before it, which comes later here."""
    foreign: list[bytes] = []
    for line in lines:
        entry = read_entry(line)
        if entry is None:
            foreign.append(line)
            if len(foreign) < _MAX_FOREIGN:
                continue
        time = mtime if entry is None else entry.time
        yield from (foreign_entry(each, time, process) for each in foreign)
        foreign.clear()
        if entry is not None:
            yield entry
    yield from (foreign_entry(each, mtime, process) for each in foreign)
