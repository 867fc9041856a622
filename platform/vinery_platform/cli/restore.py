"""`vinery restore`: the state of a backup, into an empty home folder.

Nothing is in the home before the whole backup was checked, and nothing is left there if it cannot
be restored.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from vinery_platform.cli.backup import describe, read
from vinery_platform.cli.shape import Failure, load_django, print_line
from vinery_platform.config import config_file
from vinery_platform.config.home import Home
from vinery_platform.operations import backup
from vinery_platform.operations.backup import BackupFailed, Manifest

# What is checked and brought up to date after a restore.
_AFTERWARDS: Final = (("prepare",), ("usage", "verify", "--last", "30d"), ("audit", "verify"))


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a backup of `vinery backup`")


def run(arguments: argparse.Namespace) -> int:
    """Raises `SettingError` while Vinery runs, and `Failure`."""
    home = Home.from_env()
    home.create()
    file = Path(arguments.file)
    try:
        with home.locked():
            _refuse_filled(home)
            with tempfile.TemporaryDirectory(dir=home.path, prefix="restoring-") as staging:
                manifest = read(file, Path(staging))
                _restore(home, Path(staging), manifest)
            print_line(f"Restored {home.path} from {file}: {describe(manifest)}")
            return _bring_up_to_date(home)
    except BackupFailed as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"The restore failed: {error}.") from error


def _refuse_filled(home: Home) -> None:
    """Raises `Failure` for a home that has any state that a backup could replace."""
    files = (home.bootstrap_file, *home.path.glob(f"{backup.SQLITE}*"))
    folders = (home.secrets, home.usage)
    found = [path.name for path in files if path.exists()]
    found += [path.name for path in folders if any(path.iterdir())]
    if found:
        raise Failure(
            f"{home.path} is not empty: it has {', '.join(sorted(found))}. Stop Vinery and move "
            "them to another folder, or set VINERY_HOME to a new one. Then restore again."
        )


def _restore(home: Home, staging: Path, manifest: Manifest) -> None:
    """Load a dump, and move the files of a backup into the home. A configuration file that is in
    the home stays."""
    with ExitStack() as undo:
        _move_configuration(home, staging, undo)
        load_django()
        _refuse_unknown_migrations(manifest)
        _restore_database(home, staging, manifest)
        for path in staging.iterdir():
            target = home.path / path.name
            if path.is_dir():
                target.rmdir()  # it is empty
            path.rename(target)
        undo.pop_all()


def _move_configuration(home: Home, staging: Path, undo: ExitStack) -> None:
    """Move vinery.toml first: it may name the database."""
    new, own = staging / config_file.NAME, home.path / config_file.NAME
    if new.exists() and own.exists():
        print_line(f"{own} stays; that of the backup is left out.")
        new.unlink()
    elif new.exists():
        new.rename(own)
        undo.callback(own.unlink, missing_ok=True)


def _refuse_unknown_migrations(manifest: Manifest) -> None:
    known = set(map(".".join, backup.known_migrations()))
    unknown = [name for name in manifest.migrations if name not in known]
    # Migrations of an earlier release may have been joined since.
    if unknown and not manifest.is_of_older_version:
        raise Failure(
            f"The backup's database is newer than this Vinery: {unknown[0]} is unknown here. "
            f"Install the version that made it ({manifest.version}), or a newer one."
        )


def _restore_database(home: Home, staging: Path, manifest: Manifest) -> None:
    """Load a dump into the database of the settings. That of SQLite is moved with other files.
    Raises `Failure` if these use another kind, or a database that is not empty."""
    from django.conf import settings

    database: dict[str, Any] = settings.DATABASES["default"]
    kind = "sqlite" if database["ENGINE"].endswith("sqlite3") else "postgresql"
    if kind != manifest.database:
        raise Failure(
            f"The backup is of {manifest.database}, and this home uses {kind}. Set DATABASE_URL "
            "for a PostgreSQL database, and leave it out for SQLite."
        )
    if kind == "sqlite":
        if Path(database["NAME"]) != home.path / backup.SQLITE:
            raise Failure("A restore puts SQLite into the home folder. Leave out DATABASE_URL.")
        return
    _refuse_tables()
    dump = staging / backup.DUMP
    backup.load_dump(database, dump)
    dump.unlink()


def _refuse_tables() -> None:
    from django.db import connection

    if connection.introspection.table_names():
        raise Failure(
            "The database has tables, and a restore needs an empty one. Create one (createdb NAME) "
            "and set DATABASE_URL to it. Then restore again."
        )
    connection.close()


def _bring_up_to_date(home: Home) -> int:
    """Upgrade the restored database, check it, and print what to do next."""
    environment = {**os.environ, "VINERY_HOME": str(home.path)}
    for words in _AFTERWARDS:
        command = [sys.executable, "-m", "vinery_platform.cli", *words]
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            raise Failure(f"`vinery {' '.join(words)}` failed after the restore.")
    print("Next: vinery up. Usage journals of the backup are stored when it starts.")
    return 0
