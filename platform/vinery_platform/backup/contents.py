"""Copies the state of an installation to a folder while its processes run.

The journals are copied before the database. What a process moves from its journal to the database
meanwhile is in both copies or in that of the database, and usage records are unique by request:
after a restore each request counts once.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from vinery_accounts.usage.journal import is_of_a_journal, journals_in, read_lines
from vinery_platform.backup import BackupFailed, archive, postgresql
from vinery_platform.backup.archive import Manifest
from vinery_platform.config import config_file
from vinery_platform.config.home import Home


def copy_to(folder: Path, home: Home, database: dict[str, Any]) -> Manifest:
    """Copy all that a backup has to an empty folder. `database` are Django's settings of it.

    Returns the manifest without members. Raises `BackupFailed` and OSError.
    """
    _copy_usage(home.usage, folder / "usage")
    is_sqlite = database["ENGINE"].endswith("sqlite3")
    if is_sqlite:
        _copy_sqlite(Path(database["NAME"]), folder / archive.SQLITE)
    else:
        postgresql.dump(postgresql.parameters_of(database), folder / archive.DUMP)
    _copy_files(home.secrets.iterdir(), folder / "secrets")
    for path in (home.bootstrap_file, home.path / config_file.NAME):
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    return archive.new_manifest("sqlite" if is_sqlite else "postgresql", _migrations())


def _copy_usage(source: Path, target: Path) -> None:
    """Copy journals as far as they are written, and the files of engines beside them."""
    target.mkdir()
    for path in journals_in(source):
        if lines := read_lines(path):
            (target / path.name).write_bytes(lines)
    others = (path for path in source.iterdir() if not is_of_a_journal(path))
    _copy_files(others, target)


def _copy_files(paths: Iterable[Path], target: Path) -> None:
    """Copy files. Those that are removed meanwhile, and drafts of others, are left out."""
    target.mkdir(exist_ok=True)
    for path in paths:
        if path.is_file() and not path.name.startswith("."):
            with suppress(FileNotFoundError):
                (target / path.name).write_bytes(path.read_bytes())


def _copy_sqlite(source: Path, target: Path) -> None:
    """Copy a consistent state of the database in one read transaction, which stops no writer."""
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as live,
            closing(sqlite3.connect(target)) as copy,
        ):
            live.backup(copy)
            [result] = copy.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise BackupFailed(f"The database {source} cannot be copied: {error}.") from error
    if result != "ok":
        raise BackupFailed(
            f"The database {source} is damaged: {result}. Restore an earlier backup."
        )


def _migrations() -> tuple[str, ...]:
    """The applied migrations, in order."""
    from django.db import connection
    from django.db.migrations.recorder import MigrationRecorder

    return tuple(sorted(map(".".join, MigrationRecorder(connection).applied_migrations())))
