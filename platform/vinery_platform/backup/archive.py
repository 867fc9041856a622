"""The archive of a backup: a tar.gz whose first member lists all others with their hashes.

An archive may come from anywhere, so reading it trusts nothing: names and sizes are those of the
list, each member is a plain file, and no read takes more memory than a megabyte.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import msgspec

from vinery_platform import __version__
from vinery_platform.backup import BackupFailed

MANIFEST: Final = "manifest.json"
SQLITE: Final = "vinery.sqlite3"
DUMP: Final = "database.dump"

_FORMAT: Final = 1
_NAME: Final = re.compile(
    r"vinery\.sqlite3|database\.dump|bootstrap\.json|vinery\.toml"
    r"|(?:secrets|usage)/[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"
)
_MAX_MANIFEST_BYTES: Final = 16 * 1024 * 1024
_MAX_READ_BYTES: Final = 1024 * 1024
_MAX_MEMBERS: Final = 100_000


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is in an archive. `migrations` are those that were applied, as `app.name`."""

    version: str
    created_at: datetime
    database: str  # sqlite or postgresql
    migrations: tuple[str, ...]
    members: tuple[Member, ...] = ()
    format: int = _FORMAT

    @property
    def size_bytes(self) -> int:
        """The size of all members on the disk."""
        return sum(member.size_bytes for member in self.members)

    @property
    def is_of_older_version(self) -> bool:
        return _numbers(self.version) < _numbers(__version__)


def new_manifest(database: str, migrations: tuple[str, ...]) -> Manifest:
    return Manifest(__version__, datetime.now(UTC), database, migrations)


def write(folder: Path, target: Path, manifest: Manifest, *, replace: bool) -> Manifest:
    """Write all files of a folder, which do not change, to an archive with mode 0600.

    A file at `target` appears whole or not at all. Its draft is beside the folder, which is on the
    same file system. Raises FileExistsError unless `replace`, `BackupFailed` for a name that no
    backup has, and OSError.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    members = tuple(_member(path, path.relative_to(folder).as_posix()) for path in paths)
    whole = msgspec.structs.replace(manifest, members=members)
    with (
        _draft_of(target, folder.parent, replace=replace) as file,
        tarfile.open(fileobj=file, mode="w:gz") as tar,
    ):
        _add(tar, MANIFEST, io.BytesIO(msgspec.json.format(msgspec.json.encode(whole))))
        for path, member in zip(paths, members, strict=True):
            with path.open("rb") as content:
                _add(tar, member.name, content)
    return whole


def read(archive: Path, into: Path | None = None) -> Manifest:
    """Check a whole archive, and write its members to a folder if one is given and has space.

    Raises `BackupFailed`, and OSError for a file that cannot be read or a folder that cannot be
    written.
    """
    with archive.open("rb") as file, _checking(archive):
        content = _Bounded(fileobj=file)
        with tarfile.open(fileobj=content, mode="r:") as tar:
            manifest = _read_manifest(tar, archive)
            if into is not None:
                _refuse_full(into, manifest)
            for expected in manifest.members:
                _read_member(tar, expected, into)
            if tar.next() is not None:
                raise BackupFailed(f"{archive} has more members than its {MANIFEST} lists.")
        # The end of the file has a checksum of the whole. Before it are only some zeros.
        if len(content.read(_MAX_READ_BYTES)) == _MAX_READ_BYTES:
            raise BackupFailed(f"{archive} has more after its last member.")
    return manifest


def _read_manifest(tar: tarfile.TarFile, archive: Path) -> Manifest:
    """Read the first member. Raises `BackupFailed` also for what this version cannot restore."""
    first = tar.next()
    if first is None or first.name != MANIFEST or not first.isreg():
        raise BackupFailed(f"{archive} is no backup of Vinery: it does not begin with {MANIFEST}.")
    if first.size > _MAX_MANIFEST_BYTES:
        raise BackupFailed(f"The {MANIFEST} of {archive} is too large.")
    text = b"".join(_chunks(tar, first))
    if msgspec.json.decode(text, type=_Head).format != _FORMAT:
        _refuse_newer("another format")
    manifest = msgspec.json.decode(text, type=Manifest)
    if _numbers(manifest.version) > _numbers(__version__):
        _refuse_newer(f"version {manifest.version}")
    if len(manifest.members) > _MAX_MEMBERS:
        raise BackupFailed(f"{archive} has more than {_MAX_MEMBERS} members.")
    return manifest


def _refuse_full(folder: Path, manifest: Manifest) -> None:
    if manifest.size_bytes > (free := shutil.disk_usage(folder).free):
        raise BackupFailed(
            f"The backup needs {manifest.size_bytes} bytes in {folder}, which has {free}."
        )


class _Head(msgspec.Struct):
    """What a manifest of any format has."""

    format: int


def _refuse_newer(what: str) -> NoReturn:
    raise BackupFailed(
        f"The backup is of {what}, and this is Vinery {__version__}. Install the version that made "
        "it, or a newer one."
    )


def _read_member(tar: tarfile.TarFile, expected: Member, into: Path | None) -> None:
    found = tar.next()
    if found is None or (found.name, found.size) != (expected.name, expected.size_bytes):
        raise BackupFailed(f"{expected.name} is missing, or has another size than in {MANIFEST}.")
    if not found.isreg() or not _NAME.fullmatch(found.name):
        raise BackupFailed(f"{found.name!r} is no file that a backup has. Nothing was restored.")
    digest = hashlib.sha256()
    with _destination(expected.name, into) as output:
        for chunk in _chunks(tar, found):
            digest.update(chunk)
            output.write(chunk)
    if digest.hexdigest() != expected.sha256:
        raise BackupFailed(f"{expected.name} differs from its hash in {MANIFEST}: it was changed.")


@contextmanager
def _destination(name: str, into: Path | None) -> Iterator[BinaryIO]:
    """A new file of mode 0600 in the folder, on the disk when this ends."""
    path = Path(os.devnull) if into is None else into / name
    if into is not None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    flags = os.O_WRONLY | (os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW if into is not None else 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        yield file
        file.flush()
        if into is not None:
            os.fsync(file.fileno())


def _chunks(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    content = tar.extractfile(member)
    assert content is not None  # it is a plain file
    while chunk := content.read(_MAX_READ_BYTES):
        yield chunk


@contextmanager
def _checking(archive: Path) -> Iterator[None]:
    """Turn the errors of the libraries into `BackupFailed`."""
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, ValueError) as error:
        raise BackupFailed(f"{archive} is damaged or no backup of Vinery: {error}.") from error


class _Bounded(gzip.GzipFile):
    """A file that refuses to read much at once: a tar header may name any size."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _MAX_READ_BYTES + tarfile.BLOCKSIZE:
            raise tarfile.ReadError("a header is too large")
        return super().read(size)


def _add(tar: tarfile.TarFile, name: str, content: BinaryIO) -> None:
    info = tarfile.TarInfo(name)
    info.size = content.seek(0, os.SEEK_END)
    info.mode = 0o600
    content.seek(0)
    tar.addfile(info, content)


def _member(path: Path, name: str) -> Member:
    if not _NAME.fullmatch(name):
        raise BackupFailed(f"{name!r} is no file of Vinery. Move it to another folder.")
    with path.open("rb") as file:
        return Member(name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


@contextmanager
def _draft_of(target: Path, drafts: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """A file in the folder `drafts`, which gets the name `target` when this ends without an
    error."""
    if target.exists() and not replace:
        raise FileExistsError(target)
    handle, name = tempfile.mkstemp(dir=drafts, prefix=f".{target.name}.")  # mode 0600
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _give_name(draft, target, replace=replace)
    finally:
        draft.unlink(missing_ok=True)


def _give_name(draft: Path, target: Path, *, replace: bool) -> None:
    """Raises FileExistsError unless `replace`, and OSError."""
    try:
        if not replace:
            target.hardlink_to(draft)  # unlike a rename, a link fails if the name exists
            return
    except FileExistsError:
        raise
    except OSError:  # some file systems have no links
        if target.exists():
            raise FileExistsError(target) from None
    draft.replace(target)


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that order versions, such as (0, 2, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
