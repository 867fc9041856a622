"""An append-only file of lines that one process owns for as long as it lives.

The owner holds a `flock` on the file; the kernel drops it when the process ends, however
it ends. So a journal whose lock is free is an orphan, and its finder may adopt it.

Nothing is synced to the disk: a written line survives the death of the process, not that
of the machine. An fsync would cost milliseconds on the event loop for each request.

Callers see to it that one thread at a time calls `append`, `replace` and `close`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from pathlib import Path

_SUFFIX = ".jsonl"
# A journal that is being written to replace another one. It holds nothing of its own.
_DRAFT_SUFFIX = ".draft"


class Journal:
    """The open file, and the end of what is written to it."""

    def __init__(self, path: Path, fd: int, size_bytes: int) -> None:
        """Takes over `fd`, which holds the lock. Use `create` or `adopt`."""
        self.path = path
        self.size_bytes = size_bytes
        self._fd = fd

    @classmethod
    def create(cls, directory: Path) -> Journal:
        """A new, empty one of this process. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            path = directory / f"{os.getpid()}-{secrets.token_hex(6)}{_SUFFIX}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            # Between the two calls a finder may have taken the empty file for an orphan.
            if _lock(path, fd):
                return cls(path, fd, 0)

    @classmethod
    def adopt(cls, path: Path) -> Journal | None:
        """The one at `path`; None when its owner lives, or when another finder was faster.

        It may end in a torn line, which `read` leaves out.
        """
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        return cls(path, fd, os.fstat(fd).st_size) if _lock(path, fd) else None

    def append(self, line: bytes) -> None:
        """Write one line to the end. Raises OSError, and then nothing was appended.

        What a failed write leaves behind has no newline: the next append overwrites it,
        and readers leave it out.
        """
        _write(self._fd, line, self.size_bytes)
        self.size_bytes += len(line)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole lines from `offset` on: about `max_bytes`, or b"" at the end."""
        while True:
            wanted = min(max_bytes, self.size_bytes - offset)
            lines = os.pread(self._fd, wanted, offset)
            end = lines.rfind(b"\n") + 1
            if end or wanted < max_bytes:
                return lines[:end]
            max_bytes *= 2  # a line longer than that

    def replace(self, lines: bytes) -> None:
        """Let the file be these lines instead, at once or (OSError) not at all."""
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
        """Delete the file and let go of it."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of the file, if not done before. It stays, for a finder to adopt."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def journals_in(directory: Path) -> list[Path]:
    """The journals of the living and of the dead."""
    return sorted(directory.glob(f"*{_SUFFIX}"))


def sweep_drafts(directory: Path) -> None:
    """Remove the drafts of processes that died while they wrote them."""
    for path in directory.glob(f"*{_DRAFT_SUFFIX}"):
        draft = Journal.adopt(path)
        if draft is not None:
            draft.remove()


def _write(fd: int, content: bytes, offset: int) -> None:
    if os.pwrite(fd, content, offset) < len(content):
        raise OSError(errno.ENOSPC, "a usage journal could not be written whole")


def _lock(path: Path, fd: int) -> bool:
    """Whether `fd` now owns the file at `path`. Closes `fd` when not."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(path.stat(), os.fstat(fd)):
            return True
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return False
