"""Unpacks archives that others have made: only plain files, only below the folder, within limits.

Formats are .zip, .tar, .tar.gz, .tar.bz2, .tar.xz. All members count, folders too, and all bytes
that are unpacked, headers too.
"""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.machine import free_bytes
from vinery_serving.models.hub.repository import check_path
from vinery_serving.models.hub.verdict import DISK_MARGIN_BYTES

_MAX_MEMBERS: Final = 10_000
_MAX_LIST_BYTES: Final = 4 << 20  # of a zip
# Weights cannot be packed to less than a part of their size.
_MAX_RATIO: Final = 20
_BLOCK_BYTES: Final = 1 << 20
_UNREADABLE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, RuntimeError),
)


class _Header(tarfile.TarInfo):
    def _proc_member(self, packed: tarfile.TarFile) -> "_Header":
        if self.type not in tarfile.REGULAR_TYPES and self.size > _BLOCK_BYTES:
            raise tarfile.ReadError("a header is too long")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a file has holes")
        return super()._proc_member(packed)  # type: ignore[misc, no-any-return]


class _Bounded:
    """A stream of at most `left` bytes. Raises `PullFailed` when more are read."""

    def __init__(self, file: IO[bytes], left: int, name: str) -> None:
        self._file, self._left, self._name = file, left, name

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._name)
        return data


class _ShortReads(io.FileIO):
    """The list of a zip is one read, of a size that the archive names."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > _MAX_LIST_BYTES:
            raise zipfile.BadZipFile("the list of its files is too long")
        return super().read(-1 if size is None else size)


def unpack(archive: Path, name: str, target: Path) -> None:
    most_bytes = min(
        archive.stat().st_size * _MAX_RATIO + _BLOCK_BYTES, free_bytes(target) - DISK_MARGIN_BYTES
    )
    seen: set[str] = set()
    is_zip = zipfile.is_zipfile(archive)
    members = _zip_members(archive, name) if is_zip else _tar_members(archive, name, most_bytes)
    for path, content in members:
        check_path(path, name)
        if path.casefold() in seen:
            raise PullFailed(f"{name} has {path!r} twice.")
        seen.add(path.casefold())
        try:
            most_bytes -= _write(content, target / path, most_bytes, name)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise PullFailed(f"{name} has a file and a folder of one name at {path!r}.") from None


def _too_large(name: str) -> PullFailed:
    return PullFailed(f"{name} unpacks to more than there is room for, or than a model would.")


def _too_many(name: str) -> PullFailed:
    return PullFailed(f"{name} has more than {_MAX_MEMBERS:,} files and folders: that is no model.")


def _write(content: IO[bytes], path: Path, most_bytes: int, name: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    num_bytes = 0
    with path.open("xb") as file:
        while True:
            with _readable(name):
                block = content.read(_BLOCK_BYTES)
            if not block:
                return num_bytes
            num_bytes += len(block)
            if num_bytes > most_bytes:
                raise _too_large(name)
            file.write(block)


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise PullFailed(f"{name} is no archive that can be read, or is damaged: {error}") from None


def _zip_members(archive: Path, name: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the paths and contents of the plain files. Raises `PullFailed` for other members."""
    with _ShortReads(archive) as file:
        with _readable(name):
            packed = zipfile.ZipFile(file)
        if len(packed.infolist()) > _MAX_MEMBERS:
            raise _too_many(name)
        for member in packed.infolist():
            if member.is_dir():
                continue
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
                raise PullFailed(f"{name} has {member.filename!r}, which is no plain file.")
            with _readable(name):
                content = packed.open(member)
            with content:
                yield member.filename, content


def _tar_members(archive: Path, name: str, most_bytes: int) -> Iterator[tuple[str, IO[bytes]]]:
    with archive.open("rb") as file:
        head = file.read(8)
    openers = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
    opener: Any = next((each for magic, each in openers.items() if head.startswith(magic)), open)
    with opener(archive, "rb") as file:
        bounded: Any = _Bounded(file, most_bytes, name)
        with _readable(name):
            packed = tarfile.open(fileobj=bounded, mode="r|", tarinfo=_Header)  # noqa: SIM115
        for _ in range(_MAX_MEMBERS):
            with _readable(name):
                member = packed.next()
            if member is None:
                return
            if member.isdir():
                continue
            content = packed.extractfile(member) if member.isreg() else None
            if content is None or member.issparse():
                raise PullFailed(f"{name} has {member.name!r}, which is no plain file.")
            yield member.name.removeprefix("./"), content
    raise _too_many(name)
