"""An append-only file of lines, owned by one process for its lifetime.

The owner holds a `flock` on the file, which the kernel releases when the process ends. A
journal with a free lock is an orphan that another process may adopt.

Lines are not synced to the disk: they survive the process, but not the machine. An fsync
for each request would cost milliseconds on the event loop.

Only one thread at a time may call `append`, `replace` and `close`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from pathlib import Path

_SUFFIX = ".jsonl"
# A journal that is being written to replace another one. It contains no new entries.
_DRAFT_SUFFIX = ".draft"


class Journal:
    """An open journal. `size_bytes` is the length of its complete lines."""

    def __init__(self, path: Path, fd: int, size_bytes: int) -> None:
        """Take over `fd`, which has the lock. Use `create` or `adopt`."""
        self.path = path
        self.size_bytes = size_bytes
        self._fd = fd

    @classmethod
    def create(cls, directory: Path) -> Journal:
        """Return a new, empty journal of this process. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            path = directory / f"{os.getpid()}-{secrets.token_hex(6)}{_SUFFIX}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            # Between the two calls another process may have adopted the empty file.
            if _lock(path, fd):
                return cls(path, fd, 0)

    @classmethod
    def adopt(cls, path: Path) -> Journal | None:
        """Return the journal at `path`, or None if another process owns it.

        It may end in a torn line, which `read` skips. Raises OSError.
        """
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        return cls(path, fd, os.fstat(fd).st_size) if _lock(path, fd) else None

    def append(self, line: bytes) -> None:
        """Append one line. Raises OSError, and then nothing was appended.

        A failed write may leave bytes without a newline. Readers skip them, and the next
        append overwrites them.
        """
        _write(self._fd, line, self.size_bytes)
        self.size_bytes += len(line)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole lines from `offset` on, about `max_bytes`; b"" at the end."""
        while True:
            wanted = min(max_bytes, self.size_bytes - offset)
            lines = os.pread(self._fd, wanted, offset)
            end = lines.rfind(b"\n") + 1
            if end or wanted < max_bytes:
                return lines[:end]
            max_bytes *= 2  # the line is longer

    def replace(self, lines: bytes) -> None:
        """Replace the content by these lines. Raises OSError, and then nothing changed."""
        draft = self.path.with_suffix(_DRAFT_SUFFIX)
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            _write(fd, lines, 0)
            draft.rename(self.path)
        except OSError:
            os.close(fd)
            draft.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd = fd
        self.size_bytes = len(lines)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the file, once. It stays on disk, and another process may adopt it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def journals_in(directory: Path) -> list[Path]:
    """Return the paths of all journals, of running and of dead processes."""
    return sorted(directory.glob(f"*{_SUFFIX}"))


def sweep_drafts(directory: Path) -> None:
    """Remove the drafts of dead processes."""
    for path in directory.glob(f"*{_DRAFT_SUFFIX}"):
        draft = Journal.adopt(path)
        if draft is not None:
            draft.remove()


def _write(fd: int, content: bytes, offset: int) -> None:
    if os.pwrite(fd, content, offset) < len(content):
        raise OSError(errno.ENOSPC, "a usage journal could not be written whole")


def _lock(path: Path, fd: int) -> bool:
    """Return whether `fd` now owns the file at `path`; otherwise close `fd`."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(path.stat(), os.fstat(fd)):
            return True
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return False
