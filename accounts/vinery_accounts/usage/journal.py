"""An append-only file of lines, owned by one process for its lifetime.

The owner holds a `flock` on the file, which the kernel releases when the process ends. A
journal with a free lock is an orphan that another process may adopt.

Lines are not synced to the disk: they survive the process, but not the machine. An fsync
for each request would cost milliseconds on the event loop.

Disk space is allocated before it is needed, also for the file that replaces a journal. So a
journal takes lines while the disk is full. The allocated rest of a file is zeros, which no line
contains. A replaced file is cleared, and then begins with a newline, which no journal does.

Only one thread at a time may call the methods that write. Methods of the draft may run beside
`append` and `allocate`."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

_SUFFIX = ".jsonl"
# The file that will replace a journal, and for a moment the one that was replaced. They contain
# no new entries.
_DRAFT_SUFFIX = ".draft"
_OLD_SUFFIX = ".old"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_BLOCK_BYTES = 256 * 1024
_SCAN_BYTES = 1024 * 1024
_MAX_COPIES = 100
_CLEARED = b"\n"


class Journal:
    """An open journal. `size_bytes` is the length of its lines."""

    def __init__(self, path: Path, fd: int, size_bytes: int) -> None:
        """Take over `fd`, which has the lock. Use `create` or `adopt`."""
        self.path = path
        self.size_bytes = size_bytes
        self._fd = fd
        self._allocated_bytes = size_bytes
        self._draft: _Draft | None = None

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

    def allocate_draft(self, size_bytes: int) -> None:
        """Allocate the file for the next `replace`, once. Raises OSError."""
        if self._draft is None:
            self._draft = _Draft.create(self.path.with_suffix(_DRAFT_SUFFIX), size_bytes)

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

    def overwrite(self, offset: int, line: bytes) -> None:
        """Replace the line at `offset` by one of the same length. Raises OSError."""
        _write(self._fd, line, offset)

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
        """Replace the content by these lines. Raises OSError, and then nothing changed. Journal and
        draft change their names, so that the next replacement needs no disk space either."""
        draft = self._draft or _Draft.create(self.path.with_suffix(_DRAFT_SUFFIX), 0)
        self._draft = draft
        draft.write(lines)
        is_kept = self._link_old()
        try:
            draft.path.rename(self.path)
        except OSError:
            # Such as one that recovery removed before it was locked. The next one is created anew.
            os.close(draft.fd)
            self._draft = None
            raise
        replaced = self._fd, max(self.size_bytes, self._allocated_bytes), self.size_bytes
        self._fd, self._allocated_bytes = draft.fd, max(draft.allocated_bytes, len(lines))
        self.size_bytes = len(lines)
        self._draft = None
        if is_kept:
            self.path.with_suffix(_OLD_SUFFIX).rename(draft.path)
            self._draft = _Draft(draft.path, *replaced)
        else:
            os.close(replaced[0])

    def _link_old(self) -> bool:
        """Whether the file has a second name that keeps it: some file systems have no links."""
        old = self.path.with_suffix(_OLD_SUFFIX)
        try:
            old.unlink(missing_ok=True)
            old.hardlink_to(self.path)
        except OSError:
            return False
        return True

    def clear_draft(self, max_bytes: int) -> None:
        """Clear the replaced lines, and give back the disk space above `max_bytes`. Needs no
        disk space, and may run while another thread appends. Raises OSError."""
        if self._draft is not None:
            self._draft.clear(max_bytes)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the file, once. The file stays on disk, and another process may adopt it."""
        if self._draft is not None:
            self._draft.path.unlink(missing_ok=True)
            os.close(self._draft.fd)
            self._draft = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(slots=True)
class _Draft:
    """The file that will replace a journal. Its first `dirty_bytes` are not zeros."""

    path: Path
    fd: int
    allocated_bytes: int
    dirty_bytes: int

    @classmethod
    def create(cls, path: Path, size_bytes: int) -> _Draft:
        """Raises OSError, and then there is no file."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if size_bytes:
                _allocate(fd, 0, size_bytes)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        return cls(path, fd, size_bytes, 0)

    def write(self, lines: bytes) -> None:
        """Write the whole content. Raises OSError."""
        num_dirty, self.dirty_bytes = self.dirty_bytes, max(self.dirty_bytes, len(lines))
        _write(self.fd, lines + bytes(max(0, num_dirty - len(lines))), 0)

    def clear(self, max_bytes: int) -> None:
        max_bytes = max(max_bytes, len(_CLEARED))
        if self.dirty_bytes:
            # First of all, so that a reader never sees a part of the old lines alone.
            _write(self.fd, _CLEARED, 0)
        if self.allocated_bytes > max_bytes:
            os.ftruncate(self.fd, max_bytes)
            self.allocated_bytes = max_bytes
            self.dirty_bytes = min(self.dirty_bytes, max_bytes)
        if self.dirty_bytes > len(_CLEARED):
            _write(self.fd, bytes(self.dirty_bytes - len(_CLEARED)), len(_CLEARED))
            self.dirty_bytes = len(_CLEARED)


def journals_in(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{_SUFFIX}"))


def is_of_a_journal(path: Path) -> bool:
    """Whether this is a journal, or one of the files beside it that contain no new entries."""
    return path.suffix in (_SUFFIX, _DRAFT_SUFFIX, _OLD_SUFFIX)


def read_lines(path: Path) -> bytes:
    """Return the whole lines of a journal that the owner may extend, replace or remove meanwhile.
    b"" for a removed journal: its entries were stored before. Raises OSError."""
    for _ in range(_MAX_COPIES):
        try:
            with path.open("rb", buffering=0) as file:
                fd = file.fileno()
                # A replaced file is cleared, perhaps in the middle of a read, and may be named as
                # the journal again before the name is checked. So the file must have its name
                # afterwards, begin with the bytes read, and not be a cleared one.
                lines, again = (os.pread(fd, _find_end(fd), 0) for _ in range(2))
                has_name = os.path.samestat(path.stat(), os.fstat(fd))
        except FileNotFoundError:
            return b""
        # The first line counts unwritten settlements, and may change.
        _, first_end, entries = lines.partition(b"\n")
        is_cleared = lines.startswith(_CLEARED)
        if has_name and not is_cleared and again.partition(b"\n")[2].startswith(entries):
            return lines[: lines.rfind(b"\n") + 1] if first_end else b""
    raise OSError(errno.EBUSY, "the usage journal changes all the time", str(path))


def sweep_drafts(directory: Path) -> None:
    for suffix in (_DRAFT_SUFFIX, _OLD_SUFFIX):
        for path in directory.glob(f"*{suffix}"):
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
