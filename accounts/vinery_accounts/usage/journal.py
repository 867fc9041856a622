"""An append-only file of lines, owned by one process for its lifetime.

The owner holds a `flock` on the file, which the kernel releases when the process ends. A
journal with a free lock is an orphan that another process may adopt.

Lines are not synced to the disk: they survive the process, but not the machine. An fsync
for each request would cost milliseconds on the event loop.

Disk space is allocated before it is needed, so a journal takes lines while the disk is full. The
allocated rest of a file is zeros, which no line contains.

Only one thread at a time may call the methods that write."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from pathlib import Path

_SUFFIX = ".jsonl"
# The file that will replace a journal. It contains no new entries.
_DRAFT_SUFFIX = ".draft"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_BLOCK_BYTES = 256 * 1024
_SCAN_BYTES = 1024 * 1024


class Journal:
    """An open journal. `size_bytes` is the length of its lines."""

    def __init__(self, path: Path, fd: int, size_bytes: int) -> None:
        """Take over `fd`, which has the lock. Use `create` or `adopt`."""
        self.path = path
        self.size_bytes = size_bytes
        self._fd = fd
        self._allocated_bytes = size_bytes

    @property
    def room_bytes(self) -> int:
        return max(0, self._allocated_bytes - self.size_bytes)

    def allocate(self, room_bytes: int) -> None:
        """Allocate disk space so that this many bytes can be appended. Raises OSError, and then
        as much as before can be."""
        missing_bytes = room_bytes - self.room_bytes
        if missing_bytes > 0:
            start = max(self._allocated_bytes, self.size_bytes)
            blocks = -(-missing_bytes // _BLOCK_BYTES)
            _allocate(self._fd, start, blocks * _BLOCK_BYTES)
            self._allocated_bytes = start + blocks * _BLOCK_BYTES

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
        """Return the journal at `path`, or None if another process owns it. `read` skips a torn
        line at the end. Raises OSError."""
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        return cls(path, fd, _find_end(fd)) if _lock(path, fd) else None

    def append(self, line: bytes) -> None:
        """Append one line. Raises OSError, and then nothing was appended. A failed write may leave
        bytes without a newline: readers skip these bytes, and the next append overwrites them."""
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

    def replace(self, lines: bytes, room_bytes: int = 0) -> None:
        """Replace the content by these lines, with disk space for so many more bytes. A reader that
        has opened the former file still reads it whole. Raises OSError, for example on a full disk,
        and then nothing changed."""
        path = self.path.with_suffix(_DRAFT_SUFFIX)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        new = Journal(path, fd, 0)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            new.allocate(len(lines) + room_bytes)
            new.append(lines)
            path.rename(self.path)
        except OSError:
            new.remove()
            raise
        self.close()
        self._fd, self.size_bytes = fd, new.size_bytes
        self._allocated_bytes = new._allocated_bytes

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the file, once. The file stays on disk, and another process may adopt it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def journals_in(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{_SUFFIX}"))


def is_of_a_journal(path: Path) -> bool:
    """Whether this is a journal, or a file beside it that contains no new entries."""
    return path.suffix in (_SUFFIX, _DRAFT_SUFFIX)


def read_lines(path: Path) -> bytes:
    """Return the whole lines of a journal that the owner may extend, replace or remove meanwhile.
    b"" for a removed journal: its entries were stored before. Raises OSError."""
    try:
        with path.open("rb", buffering=0) as file:
            lines = os.pread(file.fileno(), _find_end(file.fileno()), 0)
    except FileNotFoundError:
        return b""
    return lines[: lines.rfind(b"\n") + 1]


def sweep_drafts(directory: Path) -> None:
    for path in directory.glob(f"*{_DRAFT_SUFFIX}"):
        draft = Journal.adopt(path)
        if draft is not None:
            draft.remove()


def _write(fd: int, content: bytes, offset: int) -> None:
    if os.pwrite(fd, content, offset) < len(content):
        raise OSError(errno.ENOSPC, "a usage journal could not be written whole")


def _allocate(fd: int, offset: int, num_bytes: int) -> None:
    """Make sure that these bytes can be written later on a full disk. Raises OSError."""
    try:
        os.posix_fallocate(fd, offset, num_bytes)
    except AttributeError:  # macOS
        _write(fd, bytes(num_bytes), offset)
    except OSError as error:
        if error.errno in _FULL:
            raise
        # A file system that cannot allocate must not stop the server.
        _write(fd, bytes(num_bytes), offset)


def _find_end(fd: int) -> int:
    offset = 0
    while content := os.pread(fd, _SCAN_BYTES, offset):
        end = content.find(b"\0")
        if end >= 0:
            return offset + end
        offset += len(content)
    return offset


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
