"""Backups of a whole installation: a tar.gz with the database, secrets, usage and configuration.

The first member, the manifest, states the version and the migrations. The checksum of gzip covers
the whole file. The journals are copied before the database, so a record that moves meanwhile is in
one copy or in both. Usage records are unique by request: after a restore each counts once.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import re
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from vinery_accounts.usage.journal import is_of_a_journal, journals_in, read_lines
from vinery_platform import __version__
from vinery_platform.config import config_file
from vinery_platform.config.home import Home

if TYPE_CHECKING:
    from django.db.migrations.executor import MigrationExecutor

MANIFEST: Final = "manifest.json"
SQLITE: Final = "vinery.sqlite3"
DUMP: Final = "database.dump"

_FORMAT: Final = 2
_NAME: Final = re.compile(
    r"vinery\.sqlite3|database\.dump|bootstrap\.json|vinery\.toml"
    r"|(?:secrets|usage)/[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"
)
_WORKSPACE: Final = ".vinery-backup-"
_CHUNK_BYTES: Final = 1024 * 1024


class BackupFailed(Exception):
    """A backup cannot be made or restored. The message gives the reason in one line."""


class Manifest(msgspec.Struct, frozen=True):
    """The origin of an archive. `migrations`: the applied ones, as `app.name`."""

    version: str
    created_at: datetime
    database: str  # sqlite or postgresql
    migrations: tuple[str, ...]
    format: int = _FORMAT

    @property
    def is_of_older_version(self) -> bool:
        return _numbers(self.version) < _numbers(__version__)


# -- Making one


def make(target: Path, home: Home, database: dict[str, Any], *, replace: bool) -> Manifest:
    """Write a backup with mode 0600, while other processes of the home run. It appears whole or
    not at all. `database` are Django's settings of it.

    Raises FileExistsError unless `replace`, `BackupFailed` and OSError.
    """
    if target.exists() and not replace:
        raise FileExistsError(target)
    is_sqlite = database["ENGINE"].endswith("sqlite3")
    kind, copy_to = ("sqlite", _copy_sqlite) if is_sqlite else ("postgresql", _dump)
    manifest = Manifest(__version__, datetime.now(UTC), kind, _migrations())
    with workspace(target.parent) as folder:
        draft, copy = folder / "draft", folder / (SQLITE if is_sqlite else DUMP)
        with draft.open("wb") as file:
            draft.chmod(0o600)
            with tarfile.open(fileobj=file, mode="w:gz") as tar:
                _add(tar, MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
                for path, content in _files(home):
                    _add(tar, path.relative_to(home.path).as_posix(), content)
                copy_to(database, copy)
                tar.add(copy, copy.name, filter=_without_owner)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    return manifest


@contextmanager
def workspace(parent: Path) -> Iterator[Path]:
    """Yield an empty folder of mode 0700 in `parent`, which is removed at the end. Folders of
    killed backups are removed, too: no process locks such a folder. Raises OSError."""
    for left in parent.glob(f"{_WORKSPACE}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=_WORKSPACE) as name, _locked(Path(name)):
        yield Path(name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises OSError if another process does, or for a link."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _files(home: Home) -> Iterator[tuple[Path, bytes]]:
    """Yield journals as far as they are written, and the other files but the database. Drafts of
    other processes, and files that are removed meanwhile, are left out."""
    for path in journals_in(home.usage):
        if lines := read_lines(path):
            yield path, lines
    others = [path for path in sorted(home.usage.iterdir()) if not is_of_a_journal(path)]
    others += [*sorted(home.secrets.iterdir()), home.bootstrap_file, home.path / config_file.NAME]
    for path in others:
        with suppress(FileNotFoundError):
            if path.is_file() and not path.name.startswith("."):
                yield path, path.read_bytes()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    if name != MANIFEST and not _NAME.fullmatch(name):
        raise BackupFailed(f"{name!r} is no file of Vinery. Move it to another folder.")
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o600
    tar.addfile(info, io.BytesIO(content))


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _copy_sqlite(database: Mapping[str, Any], target: Path) -> None:
    """Copy a consistent state of the database in one read transaction, which stops no writer."""
    source = Path(database["NAME"])
    try:
        uri = f"{source.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as live:
            live.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.Error as error:
        raise BackupFailed(
            f"The database {source} cannot be copied: {error}. If it is damaged, restore an "
            "earlier backup."
        ) from error


def known_migrations() -> set[tuple[str, str]]:
    """Return the migrations of this version, by app and name, with the replaced migrations."""
    from django.db.migrations.loader import MigrationLoader

    found = MigrationLoader(None).disk_migrations
    return {*found, *(name for each in found.values() for name in each.replaces)}


def newer_migration(executor: MigrationExecutor) -> str:
    """The last migration that a newer version has applied; empty: there is none.

    Joined migrations of earlier versions are unknown, too. Those of a newer version were applied
    after the last one of this version.
    """
    applied, known = executor.recorder.applied_migrations(), known_migrations()
    newest = {app: applied.get((app, name)) for app, name in executor.loader.graph.leaf_nodes()}
    newer = [
        row.name
        for (app, name), row in applied.items()
        if (app, name) not in known and (last := newest.get(app)) and row.pk > last.pk
    ]
    return max(newer, default="")


def _migrations() -> tuple[str, ...]:
    from django.db import connection
    from django.db.migrations.recorder import MigrationRecorder

    return tuple(sorted(map(".".join, MigrationRecorder(connection).applied_migrations())))


# -- Reading one


def read(archive: Path, into: Path | None = None) -> Manifest:
    """Check a whole archive, and write its members to a folder if one is given.

    Raises `BackupFailed`, also for what this version cannot restore, and OSError.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            manifest = _read_manifest(tar, archive)
            names = set()
            while (member := tar.next()) is not None:
                names.add(member.name)
                _read_member(tar, member, into)
            assert tar.fileobj is not None
            while tar.fileobj.read(_CHUNK_BYTES):  # to its end, where the checksum is
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, ValueError) as error:
        raise BackupFailed(f"{archive} is damaged or no backup of Vinery: {error}.") from error
    if (SQLITE if manifest.database == "sqlite" else DUMP) not in names:
        raise BackupFailed(f"{archive} has no database.")
    return manifest


def _read_manifest(tar: tarfile.TarFile, archive: Path) -> Manifest:
    first = tar.next()
    if first is None or first.name != MANIFEST or not first.isreg():
        raise BackupFailed(f"{archive} is no backup of Vinery: it does not begin with {MANIFEST}.")
    content = tar.extractfile(first)
    assert content is not None  # it is a plain file
    manifest = msgspec.json.decode(content.read(), type=Manifest)
    if manifest.format > _FORMAT or _numbers(manifest.version) > _numbers(__version__):
        raise BackupFailed(
            f"The backup is of version {manifest.version}, and this is Vinery {__version__}. "
            "Install the version that made it, or a newer one."
        )
    return manifest


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path | None) -> None:
    if not member.isreg() or not _NAME.fullmatch(member.name):
        raise BackupFailed(f"{member.name!r} is no file that a backup has. Nothing was restored.")
    content = tar.extractfile(member)
    assert content is not None  # it is a plain file
    path = Path(os.devnull) if into is None else into / member.name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(content, file, _CHUNK_BYTES)
        if into is not None:
            path.chmod(0o600)
            os.fsync(file.fileno())


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


# -- PostgreSQL, with its own programs


def _dump(database: Mapping[str, Any], target: Path) -> None:
    _run(database, "pg_dump", "--format=custom", f"--file={target}")


def load_dump(database: Mapping[str, Any], dump: Path) -> None:
    """Load a dump into an empty database in one transaction. Raises `BackupFailed`."""
    _run(database, "pg_restore", "--single-transaction", str(dump))


def _run(database: Mapping[str, Any], program: str, *words: str) -> None:
    """Run a program that connects to this database. How is in a file, because other users may
    read a program's arguments."""
    with tempfile.TemporaryDirectory(prefix="vinery-") as folder:
        file = Path(folder) / "service.conf"
        file.touch(0o600)
        lines = ["[vinery]", *(f"{name}={value}" for name, value in _parameters(database).items())]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        environment = {name: each for name, each in os.environ.items() if name[:2] != "PG"}
        argv = (program, "--dbname=service=vinery", "--no-owner", "--no-privileges", *words)
        _finish(argv, environment | {"PGSERVICEFILE": str(file)})


def _parameters(database: Mapping[str, Any]) -> dict[str, str]:
    """libpq's parameters of a connection with Django's settings."""
    names = ("HOST", "PORT", "USER", "PASSWORD")
    found = {name.lower(): str(database[name]) for name in names if database.get(name)}
    options = database.get("OPTIONS", {})
    others = {name: str(value) for name, value in options.items() if name != "pool"}
    return {"dbname": str(database["NAME"]), **found, **others}


def _finish(words: Sequence[str], environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise BackupFailed(
            f"{words[0]} is missing. Install PostgreSQL's client programs (such as the package "
            "postgresql-client), of the server's version or newer."
        ) from None
    if done.returncode != 0:
        reason = " ".join(done.stderr.decode(errors="replace").split())
        raise BackupFailed(f"{words[0]} failed: {reason}")
