"""Unpacks archives that others have made: only plain files, only below the folder, within limits.

Formats are those of `tarfile` and `zipfile`: .zip, .tar, .tar.gz, .tar.bz2, .tar.xz.
"""

import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.machine import free_bytes
from vinery_serving.models.hub.repository import check_path
from vinery_serving.models.hub.verdict import DISK_MARGIN_BYTES

_MAX_FILES: Final = 10_000
# Weights cannot be packed to less than a part of their size.
_MAX_RATIO: Final = 20
_BLOCK_BYTES: Final = 1 << 20
_UNREADABLE: Final = (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, RuntimeError)


class _Header(tarfile.TarInfo):
    def _proc_member(self, packed: tarfile.TarFile) -> "_Header":
        if self.type not in tarfile.REGULAR_TYPES and self.size > _BLOCK_BYTES:
            raise tarfile.ReadError("a header is too long")
        return super()._proc_member(packed)  # type: ignore[misc, no-any-return]


def unpack(archive: Path, name: str, target: Path) -> None:
    most_bytes = min(
        archive.stat().st_size * _MAX_RATIO + _BLOCK_BYTES, free_bytes(target) - DISK_MARGIN_BYTES
    )
    seen: set[str] = set()
    for path, content in _plain_members(archive, name):
        check_path(path, name)
        if path.casefold() in seen:
            raise PullFailed(f"{name} has {path!r} twice.")
        seen.add(path.casefold())
        if len(seen) > _MAX_FILES:
            raise PullFailed(f"{name} has more than {_MAX_FILES:,} files: that is no model.")
        most_bytes -= _write(content, target / path, most_bytes, name)


def _write(content: IO[bytes], path: Path, most_bytes: int, name: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    num_bytes = 0
    with path.open("xb") as file:
        while block := _read(content, name):
            num_bytes += len(block)
            if num_bytes > most_bytes:
                raise PullFailed(
                    f"{name} unpacks to more than there is room for, or than a model would."
                )
            file.write(block)
    return num_bytes


def _read(content: IO[bytes], name: str) -> bytes:
    with _readable(name):
        return content.read(_BLOCK_BYTES)


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise PullFailed(f"{name} is no archive that can be read, or is damaged: {error}") from None


def _plain_members(archive: Path, name: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the paths and contents of the plain files. Raises `PullFailed` for other members."""
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive, name)
    else:
        yield from _tar_members(archive, name)


def _zip_members(archive: Path, name: str) -> Iterator[tuple[str, IO[bytes]]]:
    with _readable(name):
        packed = zipfile.ZipFile(archive)
    with packed:
        if len(packed.infolist()) > _MAX_FILES:
            raise PullFailed(f"{name} has more than {_MAX_FILES:,} files: that is no model.")
        for member in packed.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                raise PullFailed(f"{name} has {member.filename!r}, which is no plain file.")
            with _readable(name):
                content = packed.open(member)
            with content:
                yield member.filename, content


def _tar_members(archive: Path, name: str) -> Iterator[tuple[str, IO[bytes]]]:
    with _readable(name):
        packed = tarfile.open(archive, "r:*", tarinfo=_Header)  # noqa: SIM115
    with packed:
        while True:
            with _readable(name):
                member = packed.next()
            if member is None:
                return
            if member.isdir():
                continue
            content = packed.extractfile(member) if member.isreg() else None
            if content is None:
                raise PullFailed(f"{name} has {member.name!r}, which is no plain file.")
            yield member.name.removeprefix("./"), content
